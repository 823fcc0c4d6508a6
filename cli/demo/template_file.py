"""What the demo sends of a file of messages, which has the format of `busway try`."""

from datetime import UTC, datetime
from pathlib import Path

from cli.demo.messages import MAX_IDENTIFIER_CHARACTERS, TYPED, Template
from cli.dry_run.recorded_messages import written
from cli.message_file import Line, read_messages_in
from shared.amqp.codec import encode
from shared.errors import MessageRejected
from shared.message.arrival import Origin
from shared.message.message import Message

# A message of the Standard tier has at most 256 KB, 64 KB of them headers and properties; the stamps need some of it.
_MAX_BODY_BYTES = 180 * 1024
_MAX_PROPERTY_BYTES = 32 * 1024
# The demo adds these to every message, or Busway, a rule or the service would change them.
_TAKEN = frozenset(("replication", "rulename", "deadletterreason", "deadlettererrordescription"))


def read_templates(file: Path) -> list[Template]:
    """Return the messages in *file*; raises ConfigError with the number of each invalid line."""
    now = datetime.now(UTC)
    return read_messages_in(file, lambda line, number: _template(line, written(line, number, now).content))


def _template(line: Line, content: bytes) -> Template:
    """Return what the demo sends of a message; raises ValueError."""
    try:
        message = Message.received(content, Origin("", ""))
        body, session_id, identity = message.body, message.session_id, message.correlation_id
        texts = {key: getattr(message, key) for key in ("subject", "content_type", "to", "reply_to")}
        found = dict(message.application_properties())
    except MessageRejected as error:
        raise ValueError("raw: expected an encoded message in Base64") from error
    if body is None or not {"raw", "body", "body_base64"} & line.keys():
        raise ValueError("expected one of body and body_base64, or a raw message with data")
    # The reason of a dead letter and the stamps of Busway belong to the way that an exported message has taken.
    kept = {name: value for name, value in found.items() if not _is_taken(name)}
    if "raw" not in line and len(kept) < len(found):
        raise ValueError(f"properties: the name {next(filter(_is_taken, found))!r} is taken, expected another")
    if session_id is not None and len(session_id) > MAX_IDENTIFIER_CHARACTERS:
        raise ValueError(f"session_id: expected text of 1 to {MAX_IDENTIFIER_CHARACTERS} characters")
    if len(body) > _MAX_BODY_BYTES:
        raise ValueError(f"body: has {len(body)} bytes, expected at most {_MAX_BODY_BYTES}")
    size = sum(len(name.encode()) + len(encode(value)) for name, value in kept.items())
    if size > _MAX_PROPERTY_BYTES:
        raise ValueError(f"properties: have {size} bytes, expected at most {_MAX_PROPERTY_BYTES}")
    texts["correlation_id"] = identity.payload if identity is not None and isinstance(identity.payload, str) else None
    return Template(body, session_id or "default", kept, **texts)


def _is_taken(name: str) -> bool:
    return not name or name.lower() in _TAKEN or name.lower().startswith((TYPED, "repl-"))
