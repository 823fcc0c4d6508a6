"""
The identity of a received message and its place in the session.

Lines are ordered sequences in which a message may have a place. At its own site the place is the sequence number of the
entity (line "west"). A copy made by Busway also has the number under which Busway received the original, the first one
in its repl-sequence (line "copy:west", named after its repl-path). The two are not compared with each other, since each
subscription of a topic has its own numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage

from busway_clients.sessions.entries import LONGEST_NUMBER, whole_number
from busway_clients.stamps import PATH, SEQUENCE, hops, text_properties

COPY = "copy:"
LONGEST_ID = 1024
LONGEST_PATH = 256
"""In characters; an entry must fit into a property of a table, which holds 32,768."""


@dataclass(frozen=True)
class Arrival:
    """A received message; *problem* is the reason why it has no identity or place, if so."""

    message: Any
    message_id: str
    session_id: str | None
    origin: str
    lines: Mapping[str, int] = field(default_factory=dict)
    number: int | None = None
    enqueued: float | None = None
    problem: str | None = None


def arrival_of(message: ServiceBusReceivedMessage, site: str, identity: str | None, number: str | None) -> Arrival:
    """Return the identity and place of *message*, received at *site*."""
    properties = text_properties(message.application_properties)
    path = hops(properties, PATH)
    sequence = next(iter(hops(properties, SEQUENCE)), "")
    named = message.message_id if identity is None else properties.get(identity)
    lines: dict[str, int] = {}
    if message.sequence_number is not None:
        lines[site] = message.sequence_number
    if path and (taken := whole_number(sequence)) is not None:
        lines[COPY + ";".join(path)] = taken
    counted = None if number is None else _integer(properties.get(number))
    problem = _too_long(str(named or ""), path, sequence)
    if named is None or named == "":
        problem = "has no message id" if identity is None else f"has no property {identity}"
    elif number is not None and counted is None:
        problem = problem or f"has no property {number} that is a whole number"
    enqueued = message.enqueued_time_utc
    return Arrival(
        message=message,
        message_id="" if named is None else str(named),
        session_id=message.session_id,
        origin=path[0] if path else site,
        lines=lines,
        number=counted,
        enqueued=None if enqueued is None else enqueued.timestamp(),
        problem=problem,
    )


def _too_long(named: str, path: Sequence[str], sequence: str) -> str | None:
    """Return the reason why a message cannot be recorded, None if it can."""
    if len(named) > LONGEST_ID:
        return f"has an id of {len(named)} characters, expected at most {LONGEST_ID}"
    if len(";".join(path)) > LONGEST_PATH:
        return f"has a {PATH} of {len(';'.join(path))} characters, expected at most {LONGEST_PATH}"
    if sequence.isdecimal() and len(sequence) > LONGEST_NUMBER:
        return f"has a {SEQUENCE} of {len(sequence)} digits, expected at most {LONGEST_NUMBER}"
    return None


def _integer(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return whole_number(value) if isinstance(value, str) else None
