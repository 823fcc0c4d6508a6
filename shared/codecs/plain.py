"""
Values of bodies in any format, which one codec reads and another one writes.

Shape:   mappings of texts to values, lists, text, booleans, integers of any size, floats, None, and, in some formats
         only, bytes, Decimal, dates and times, UUID. A codec rejects a value that its format cannot represent; none
         rounds.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from shared.errors import MessageRejected

DEEPEST = 100
"""How deeply mappings and lists may be nested; the same as protobuf's limit."""

# Codecs check the types themselves.
type Plain = Any

# Errors of the libraries for values that a format cannot represent; their texts quote the value.
_PROBLEMS: Mapping[type[Exception], str] = {
    UnicodeEncodeError: "half a character (a lone surrogate)",
    OverflowError: "a number out of range",
    ValueError: "a number that is infinite, NaN or too long",
    TypeError: "a value of a type",
}


class Codec(Protocol):
    """A body format."""

    name: str
    media_type: str
    """The media type that it writes."""

    def claims(self, media_type: str) -> bool:
        """Return whether a media type, in lower case and without parameters, is one of this format."""
        ...

    def read(self, content: bytes) -> Plain:
        """Return the value in *content*; raises MessageRejected if it is not of this format."""
        ...

    def write(self, value: Plain) -> bytes:
        """Return *value* in this format; raises MessageRejected if the format cannot represent it."""
        ...


@runtime_checkable
class TextCodec(Protocol):
    """A format that is text, so that its bodies can be in another character set than UTF-8."""

    def read_text(self, content: bytes, charset: str) -> Plain:
        """Return the value in *content*, which is in *charset*; raises MessageRejected."""
        ...


def check_depth(value: Plain) -> None:
    """Raise MessageRejected if mappings and lists are nested more than DEEPEST deep."""
    level = [value]
    for _ in range(DEEPEST):
        inner = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, (dict, list)))
        level = [child for children in inner for child in children if isinstance(child, (dict, list))]
        if not level:
            return
    raise too_deep()


def check_names(value: Plain) -> None:
    """Raise MessageRejected if a mapping has a key that is not text."""
    if type(value) is dict:
        try:
            "".join(value)
        except TypeError as error:
            raise MessageRejected("NotReadable", "body has a key that is not text") from error
        value = value.values()
    elif type(value) is not list:
        return
    for each in value:
        if type(each) is dict or type(each) is list:
            check_names(each)


def as_text(value: object) -> str:
    """
    Return a value as text, for formats without its type: bytes in Base64, times as in RFC 3339.

    Raises TypeError for a value of any other type.
    """
    match value:
        case bytes():
            return b64encode(value).decode()
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date() | time():
            return value.isoformat()
        case UUID():
            return str(value)
    seconds, nanoseconds = getattr(value, "seconds", None), getattr(value, "nanoseconds", None)
    if not isinstance(seconds, int) or not isinstance(nanoseconds, int):
        raise TypeError(type(value).__name__)
    # A timestamp of MessagePack, which is more precise than Python's.
    whole = datetime.fromtimestamp(seconds, tz=UTC).replace(tzinfo=None).isoformat()
    fraction = f"{nanoseconds:09}".rstrip("0")
    return f"{whole}.{fraction}Z" if fraction else f"{whole}Z"


def not_writable(value: Plain, write: Callable[[Plain], object], error: Exception, name: str) -> MessageRejected:
    """
    Return the rejection of *value*, for which *write* has raised *error*.

    The place is that of the first part which cannot be written alone; names are the sender's and are not reported.
    """
    what = next(text for kind, text in _PROBLEMS.items() if isinstance(error, kind))
    return MessageRejected("NotWritable", f"body has {what} at {_place(value, write)}, which {name} cannot represent")


def too_deep() -> MessageRejected:
    """Return the rejection of a body that is nested too deeply."""
    return MessageRejected("TooDeep", f"body is nested more than {DEEPEST} deep")


def _place(value: Plain, write: Callable[[Plain], object]) -> str:
    path = "$"
    while True:
        parts: list[tuple[str, Plain]] = []
        if isinstance(value, dict):
            parts = [(".*", each) for each in value.values()]
        elif isinstance(value, list):
            parts = [(f"[{index}]", each) for index, each in enumerate(value)]
        refused = [part for part in parts if _is_refused(part[1], write)]
        if not refused:
            return path
        path, value = path + refused[0][0], refused[0][1]


def _is_refused(value: Plain, write: Callable[[Plain], object]) -> bool:
    try:
        write(value)
    except tuple(_PROBLEMS):
        return True
    return False
