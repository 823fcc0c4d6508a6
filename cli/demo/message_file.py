"""Messages from a file with one JSON object per line: written by hand, or exported."""

import base64
import binascii
import json
from collections.abc import Mapping
from pathlib import Path

from cli.demo.messages import MAX_IDENTIFIER_CHARACTERS, TYPED, Template
from cli.demo.property_types import property_value
from shared.amqp.codec import encode
from shared.amqp.values import Value
from shared.errors import ConfigError, MessageRejected, Problem
from shared.message.arrival import Origin
from shared.message.message import Message

# A message of the Standard tier has at most 256 KB, 64 KB of them headers and properties; the stamps need some of it.
_MAX_BODY_BYTES = 180 * 1024
_MAX_PROPERTY_BYTES = 32 * 1024

_TEXTS = ("subject", "content_type", "correlation_id", "to", "reply_to")
_KEYS = frozenset((*_TEXTS, "body", "body_base64", "session", "properties"))
# The demo adds these to every message, or Busway, a rule or the service would change them.
_TAKEN = frozenset(("replication", "rulename", "deadletterreason", "deadlettererrordescription"))


def read_templates(file: Path) -> list[Template]:
    """Return the messages in *file*; raises ConfigError with the number of each invalid line."""
    templates: list[Template] = []
    problems: list[Problem] = []
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError([Problem(str(file), f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([Problem(str(file), f"is not UTF-8 text: {error}")]) from error
    # Not splitlines: JSON strings may contain Unicode line separators.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            templates.append(_template(json.loads(line)))
        except ValueError as error:
            problems.append(Problem(f"{file}: line {number}", _text_of(error)))
    if not templates and not problems:
        problems.append(Problem(str(file), "has no messages", "one JSON object per line"))
    if problems:
        raise ConfigError(problems)
    return templates


def _text_of(error: ValueError) -> str:
    return f"is not JSON: {error}" if isinstance(error, json.JSONDecodeError) else str(error)


def _template(line: object) -> Template:
    if not isinstance(line, dict):
        raise ValueError(f"is {type(line).__name__}, expected a JSON object")  # noqa: TRY004 - the line is at fault
    if "raw" in line:
        return _exported(line)
    unknown = sorted(line.keys() - _KEYS)
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}, expected {', '.join(sorted(_KEYS))}")
    texts = {key: _text(line, key) for key in _TEXTS}
    session_id = _text(line, "session")
    return Template(
        body=_body(line),
        session_id="default" if session_id is None else session_id,
        properties=_properties(line.get("properties", {})),
        **texts,
    )


def _exported(line: Mapping[str, object]) -> Template:
    """Return the content of a message that `busway dead export` or `busway try --save` has written."""
    encoded = line["raw"]
    try:
        content = base64.b64decode(encoded if isinstance(encoded, str) else "?", validate=True)
        message = Message.received(content, Origin("", ""))
        body, session_id = message.body, message.session_id
        texts = {key: getattr(message, key) for key in ("subject", "content_type", "to", "reply_to")}
        correlation_id = message.correlation_id
        found = dict(message.application_properties())
    except (binascii.Error, MessageRejected) as error:
        raise ValueError("raw: expected an encoded message in Base64") from error
    if body is None:
        raise ValueError("raw: the body is a value or a sequence, expected data")
    return Template(
        body=_limited(body),
        session_id=session_id or "default",
        # The reason of a dead letter and the stamps of Busway belong to the way that the message has taken.
        properties=_limited_properties({name: value for name, value in found.items() if not _is_taken(name)}),
        correlation_id=correlation_id.payload
        if correlation_id is not None and isinstance(correlation_id.payload, str)
        else None,
        **texts,
    )


def _is_taken(name: str) -> bool:
    return not name or name.lower() in _TAKEN or name.lower().startswith((TYPED, "repl-"))


def _text(line: Mapping[str, object], key: str) -> str | None:
    value = line.get(key)
    if value is None:
        return None
    if not isinstance(value, str) or not 0 < len(value) <= MAX_IDENTIFIER_CHARACTERS:
        raise ValueError(f"{key}: expected text of 1 to {MAX_IDENTIFIER_CHARACTERS} characters")
    if key == "content_type" and not value.isascii():
        raise ValueError("content_type: expected ASCII")
    return value


def _body(line: Mapping[str, object]) -> bytes:
    if ("body" in line) == ("body_base64" in line):
        raise ValueError("expected one of body and body_base64")
    if "body" in line:
        content = line["body"]
        text = content if isinstance(content, str) else json.dumps(content, separators=(",", ":"), ensure_ascii=False)
        try:
            body = text.encode()
        except UnicodeEncodeError as error:
            raise ValueError("body: has half of a surrogate pair, which is not valid UTF-8") from error
    else:
        encoded = line["body_base64"]
        try:
            body = base64.b64decode(encoded if isinstance(encoded, str) else "?", validate=True)
        except binascii.Error as error:
            raise ValueError("body_base64: expected Base64 text") from error
    return _limited(body)


def _limited(body: bytes) -> bytes:
    if len(body) > _MAX_BODY_BYTES:
        raise ValueError(f"body: has {len(body)} bytes, expected at most {_MAX_BODY_BYTES}")
    return body


def _properties(content: object) -> dict[str, Value]:
    if not isinstance(content, dict):
        raise ValueError("properties: expected an object")  # noqa: TRY004 - the line is at fault
    properties = {}
    for name, value in content.items():
        if _is_taken(name):
            raise ValueError(f"properties: the name {name!r} is taken, expected another")
        try:
            properties[name] = property_value(value)
        except ValueError as error:
            raise ValueError(f"properties: {name}: {error}") from error
    return _limited_properties(properties)


def _limited_properties(properties: dict[str, Value]) -> dict[str, Value]:
    size = sum(len(name.encode()) + len(encode(value)) for name, value in properties.items())
    if size > _MAX_PROPERTY_BYTES:
        raise ValueError(f"properties: have {size} bytes, expected at most {_MAX_PROPERTY_BYTES}")
    return properties
