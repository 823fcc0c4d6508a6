"""The application properties of a received message, and among them the repl-* stamps, which have one value per hop."""

from collections.abc import Mapping
from datetime import MINYEAR, UTC, datetime
from typing import Any

SEQUENCE = "repl-sequence"
PATH = "repl-path"
ENQUEUE_TIME = "repl-enqueue-time"


def text_properties(properties: Mapping[Any, Any] | None) -> dict[str, Any]:
    """Return application properties with names and texts decoded, since the SDK returns bytes."""
    return {decoded(name): decoded(value) for name, value in (properties or {}).items()}


def hops(properties: Mapping[str, Any], name: str) -> list[str]:
    """Return the values of a repl-* property, one per hop, oldest first."""
    value = properties.get(name)
    return value.split(";") if isinstance(value, str) and value else []


def hop_time(text: str) -> datetime | None:
    """Return a time of a stamp, None for other text, and for the year 1, by which Microsoft's sample means no time."""
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    if time.year == MINYEAR:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def decoded(value: object) -> Any:  # noqa: ANN401 - a value of an application property
    """Return a property's name or value, bytes as the text that the SDK sends for them."""
    # Bytes that cannot be decoded stay different from each other, since a property may be an identity.
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else value


def text_of(value: object) -> str:
    """Return an id as text; in AMQP it may also be bytes, a number or a UUID."""
    return str(decoded(value))
