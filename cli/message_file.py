"""Files of messages, one JSON object per line: written by hand, or exported."""

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from cli.property_types import property_value
from shared.amqp.values import Value
from shared.errors import ConfigError, Problem

type Line = Mapping[str, object]


def read_messages_in[T](file: Path, read: Callable[[Line, int], T]) -> list[T]:
    """
    Return what *read* makes of each line of *file* and its number; it raises ValueError for an invalid one.

    Raises ConfigError with every invalid line.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError([Problem(str(file), f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 text at byte {error.start}"
        raise ConfigError([Problem(str(file), problem, "one JSON object per line")]) from error
    messages: list[T] = []
    problems: list[Problem] = []
    # Not splitlines: JSON strings may contain other line separators of Unicode.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
            if not isinstance(content, dict):
                raise ValueError(f"is {type(content).__name__}, expected a JSON object")  # noqa: TRY004, TRY301 - the line is at fault
            messages.append(read(content, number))
        except (ValueError, RecursionError) as error:
            # Neither the decoder's errors nor ours quote the message.
            problems.append(Problem(f"{file}: line {number}", _text_of(error)))
    if not messages and not problems:
        problems.append(Problem(str(file), "has no messages", "one JSON object per line"))
    if problems:
        raise ConfigError(problems)
    return messages


def _text_of(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "is nested too deeply"
    return f"is not JSON: {error}" if isinstance(error, json.JSONDecodeError) else str(error)


def check_keys(line: Line, known: tuple[str, ...]) -> None:
    """Raise ValueError for a key that is not *known*."""
    unknown = sorted(line.keys() - {*known})
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}, expected {', '.join(known)}")


def text_in(line: Line, key: str) -> str | None:
    """Return the text of a key, None without one; raises ValueError."""
    value = line.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{key}: expected text")
    return value


def bytes_in(line: Line, key: str) -> bytes:
    """Return the bytes of a key in Base64; raises ValueError."""
    encoded = line[key]
    try:
        return base64.b64decode(encoded if isinstance(encoded, str) else "?", validate=True)
    except binascii.Error as error:
        raise ValueError(f"{key}: expected Base64 text") from error


def body_in(line: Line) -> bytes | None:
    """Return the body: text, or JSON, or bytes in `body_base64`; None without one. Raises ValueError."""
    if "body" in line and "body_base64" in line:
        raise ValueError("expected one of body and body_base64")
    if "body_base64" in line:
        return bytes_in(line, "body_base64")
    if "body" not in line:
        return None
    content = line["body"]
    text = content if isinstance(content, str) else json.dumps(content, separators=(",", ":"), ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("body: has half of a surrogate pair, which is not valid UTF-8") from error


def properties_in(line: Line) -> dict[str, Value]:
    """Return the application properties with their types; raises ValueError."""
    content = line.get("properties", {})
    if not isinstance(content, dict):
        raise ValueError("properties: expected an object")  # noqa: TRY004 - the line is at fault
    found = {}
    for name, value in content.items():
        try:
            found[name] = property_value(value)
        except ValueError as error:
            raise ValueError(f"properties: {name}: {error}") from error
    return found
