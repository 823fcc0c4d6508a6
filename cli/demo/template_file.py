"""What the demo sends of a file of messages."""

from pathlib import Path

from cli.demo.messages import MAX_IDENTIFIER_CHARACTERS, TYPED, Template
from cli.message_file import Line, body_in, bytes_in, check_keys, properties_in, read_messages_in
from shared.amqp.codec import encode
from shared.amqp.values import Value
from shared.errors import MessageRejected
from shared.message.arrival import Origin
from shared.message.message import Message

# A message of the Standard tier has at most 256 KB, 64 KB of them headers and properties; the stamps need some of it.
_MAX_BODY_BYTES = 180 * 1024
_MAX_PROPERTY_BYTES = 32 * 1024

_TEXTS = ("subject", "content_type", "correlation_id", "to", "reply_to")
_KEYS = tuple(sorted((*_TEXTS, "body", "body_base64", "session", "properties")))
# The demo adds these to every message, or Busway, a rule or the service would change them.
_TAKEN = frozenset(("replication", "rulename", "deadletterreason", "deadlettererrordescription"))


def read_templates(file: Path) -> list[Template]:
    """Return the messages in *file*; raises ConfigError with the number of each invalid line."""
    return read_messages_in(file, lambda line, _: _exported(line) if "raw" in line else _handwritten(line))


def _handwritten(line: Line) -> Template:
    check_keys(line, _KEYS)
    texts = {key: _text(line, key) for key in _TEXTS}
    session_id, body, properties = _text(line, "session"), body_in(line), properties_in(line)
    if body is None:
        raise ValueError("expected one of body and body_base64")
    taken = next(filter(_is_taken, properties), None)
    if taken is not None:
        raise ValueError(f"properties: the name {taken!r} is taken, expected another")
    return _template(body, session_id, properties, texts)


def _exported(line: Line) -> Template:
    """Return the content of a message that `busway dead export` or `busway try --save` has written."""
    try:
        message = Message.received(bytes_in(line, "raw"), Origin("", ""))
        body, session_id, identity = message.body, message.session_id, message.correlation_id
        texts = {key: getattr(message, key) for key in ("subject", "content_type", "to", "reply_to")}
        found = dict(message.application_properties())
    except (ValueError, MessageRejected) as error:
        raise ValueError("raw: expected an encoded message in Base64") from error
    if body is None:
        raise ValueError("raw: the body is a value or a sequence, expected data")
    texts["correlation_id"] = identity.payload if identity is not None and isinstance(identity.payload, str) else None
    # The reason of a dead letter and the stamps of Busway belong to the way that the message has taken.
    kept = {name: value for name, value in found.items() if not _is_taken(name)}
    return _template(body, session_id or None, kept, texts)


def _template(
    body: bytes, session_id: str | None, properties: dict[str, Value], texts: dict[str, str | None]
) -> Template:
    if len(body) > _MAX_BODY_BYTES:
        raise ValueError(f"body: has {len(body)} bytes, expected at most {_MAX_BODY_BYTES}")
    size = sum(len(name.encode()) + len(encode(value)) for name, value in properties.items())
    if size > _MAX_PROPERTY_BYTES:
        raise ValueError(f"properties: have {size} bytes, expected at most {_MAX_PROPERTY_BYTES}")
    return Template(body, "default" if session_id is None else session_id, properties, **texts)


def _is_taken(name: str) -> bool:
    return not name or name.lower() in _TAKEN or name.lower().startswith((TYPED, "repl-"))


def _text(line: Line, key: str) -> str | None:
    value = line.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= MAX_IDENTIFIER_CHARACTERS:
        raise ValueError(f"{key}: expected text of 1 to {MAX_IDENTIFIER_CHARACTERS} characters")
    if key == "content_type" and not value.isascii():
        raise ValueError("content_type: expected ASCII")
    return value
