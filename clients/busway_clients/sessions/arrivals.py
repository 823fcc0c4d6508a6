"""
What the journal needs to know of a received message: who it is and where it stands in its session.

Lines are ordered sequences in which a message may have a place. At its own site that is the sequence number of the
entity (line "west"). A copy that Busway has made has besides the number that it had where Busway took it, which
stands first in its repl-sequence (line "copy:west", after its repl-path). The two are not compared with each other,
since subscriptions of one topic count apart.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

SEQUENCE = "repl-sequence"
PATH = "repl-path"
ENQUEUE_TIME = "repl-enqueue-time"
COPY = "copy:"


class ReceivedMessage(Protocol):
    """What is read of azure.servicebus.ServiceBusReceivedMessage."""

    @property
    def message_id(self) -> str | None: ...  # noqa: D102 - the SDK's own
    @property
    def session_id(self) -> str | None: ...  # noqa: D102 - likewise
    @property
    def sequence_number(self) -> int | None: ...  # noqa: D102 - likewise
    @property
    def enqueued_time_utc(self) -> datetime | None: ...  # noqa: D102 - likewise
    @property
    def application_properties(self) -> Mapping[Any, Any] | None: ...  # noqa: D102 - likewise


@dataclass(frozen=True)
class Arrival:
    """A received message; *problem* is why it cannot be recognised or placed, if so."""

    message: Any
    message_id: str
    session_id: str | None
    origin: str
    lines: Mapping[str, int] = field(default_factory=dict)
    number: int | None = None
    enqueued: float | None = None
    problem: str | None = None


def text_properties(properties: Mapping[Any, Any] | None) -> dict[str, Any]:
    """Return application properties by names as text, texts as text; the SDK gives bytes."""
    return {_text(name): _text(value) for name, value in (properties or {}).items()}


def hops(properties: Mapping[str, Any], name: str) -> list[str]:
    """Return the values of a repl-* property, one per hop, oldest first; none where there is none."""
    value = properties.get(name)
    return value.split(";") if isinstance(value, str) and value else []


def arrival_of(message: ReceivedMessage, site: str, identity: str | None, number: str | None) -> Arrival:
    """Return what *message*, received at *site*, is to the journal."""
    properties = text_properties(message.application_properties)
    problem = None
    named = message.message_id if identity is None else properties.get(identity)
    if named is None or named == "":
        problem = "has no message id" if identity is None else f"has no property {identity}"
        named = ""
    path = hops(properties, PATH)
    lines: dict[str, int] = {}
    if message.sequence_number is not None:
        lines[site] = message.sequence_number
    if path and (sequences := hops(properties, SEQUENCE)) and sequences[0].isdecimal():
        lines[COPY + ";".join(path)] = int(sequences[0])
    counted = None
    if number is not None:
        counted = _integer(properties.get(number))
        if counted is None:
            problem = problem or f"has no property {number} that is a whole number"
    enqueued = message.enqueued_time_utc
    return Arrival(
        message=message,
        message_id=str(named),
        session_id=message.session_id,
        origin=path[0] if path else site,
        lines=lines,
        number=counted,
        enqueued=None if enqueued is None else enqueued.timestamp(),
        problem=problem,
    )


def age(arrival: Arrival, now: float | None = None) -> float:
    """Return for how many seconds a message has been there, by two clocks that may be apart; never below 0."""
    if arrival.enqueued is None:
        return 0.0
    return max(0.0, (time.time() if now is None else now) - arrival.enqueued)


def _integer(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() else None


def _text(value: object) -> Any:  # noqa: ANN401 - a value of an application property
    return value.decode(errors="replace") if isinstance(value, bytes) else value
