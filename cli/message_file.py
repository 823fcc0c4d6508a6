"""Files of messages, one JSON object per line: written by hand, or exported."""

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from cli.property_types import property_value
from shared.amqp.values import Value
from shared.errors import ConfigError, MessageRejected, Problem

type Line = Mapping[str, object]


def read_messages_in[T](file: Path, read: Callable[[Line, int], T]) -> list[T]:
    """
    Return what *read* makes of each line of *file* and its number; it raises ValueError for an invalid one.

    Raises ConfigError with every invalid line.
    """
    messages: list[T] = []
    problems: list[Problem] = []
    for number, line in lines_of(file):
        try:
            messages.append(read(line_in(line), number))
        except ValueError as error:
            problems.append(Problem(f"{file}: line {number}", str(error)))
        except MessageRejected as error:
            problems.append(Problem(f"{file}: line {number}", error.description))
    if not messages and not problems:
        problems.append(Problem(str(file), "has no messages", "one JSON object per line"))
    if problems:
        raise ConfigError(problems)
    return messages


def lines_of(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not empty, each with its number; raises ConfigError."""
    try:
        # The file itself has no other line separators of Unicode, which JSON strings may contain.
        with file.open(encoding="utf-8", newline="\n") as opened:
            yield from ((number, line) for number, line in enumerate(opened, 1) if line.strip())
    except OSError as error:
        raise ConfigError([Problem(str(file), f"cannot be read: {error.strerror}")]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([Problem(str(file), "is not UTF-8 text", "one JSON object per line")]) from error


def line_in(text: str) -> Line:
    """Return the object of a line; raises ValueError, which does not quote the message."""
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error}") from error
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    if not isinstance(content, dict):
        raise ValueError(f"is {type(content).__name__}, expected a JSON object")  # noqa: TRY004 - the line is at fault
    return content


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
