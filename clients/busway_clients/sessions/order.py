"""
A received message, its place in the session, and what must be finished before it may be processed.

Lines are ordered sequences in which a message may have a place. At its own site the place is the sequence number of the
entity (line "west"). A copy made by Busway also has the number under which Busway received the original, the first one
in its repl-sequence (line "copy:west", named after its repl-path). The two are not compared with each other, since each
subscription of a topic has its own numbers.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from azure.servicebus import ServiceBusReceivedMessage

from busway_clients.sessions.entries import LONGEST_NUMBER, Entry, whole_number
from busway_clients.sessions.leases import Lease, Record
from busway_clients.sessions.settings import Settings
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
    value = None if number is None else properties.get(number)
    counted = value if type(value) is int else whole_number(value) if isinstance(value, str) else None
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


def precedes(earlier: Arrival | Entry, later: Arrival | Entry) -> bool:
    """
    Whether *earlier* is known to come before *later*; False if the two cannot be compared.

    1. Both have a number from the application: compare the numbers.
    2. Their origins differ: not comparable, since each site has its own order.
    3. Both have a place in the same line: compare the places, preferably in the line of the origin.
    4. *earlier* was received at the origin, *later* only as a copy elsewhere: *earlier* comes first, since a consumer
       receives the messages of a session in order.
    """
    if earlier.number is not None and later.number is not None:
        return earlier.number < later.number
    site = earlier.origin
    if site != later.origin:
        return False
    shared = earlier.lines.keys() & later.lines.keys()
    if shared:
        line = site if site in shared else min(shared)
        return earlier.lines[line] < later.lines[line]
    return site in earlier.lines and site not in later.lines


def blocking_reason(arrival: Arrival, record: Record, settings: Settings, done: Collection[str] = ()) -> str | None:
    """
    Return a description of what *arrival* must wait for, None for nothing.

    *done* are the ids of messages that are open in the record and will be finished first.
    """
    if arrival.number is not None:
        reached = through(record.lease, settings)
        missing = arrival.number - 1
        taken = {entry.number for entry in record.entries.values() if entry.state.is_final or entry.message_id in done}
        if missing > reached and missing not in taken:
            return f"number {reached + 1} of its session, as it has number {arrival.number}"
        return None
    for entry in earlier_open_entries(arrival, record, done):
        return f"message {entry.message_id}, which is {entry.state.value} at {entry.site}"
    return None


def earlier_open_entries(arrival: Arrival, record: Record, done: Collection[str] = ()) -> Iterator[Entry]:
    """Yield the entries that *arrival* must wait for; none if it has a number, which alone defines its order."""
    if arrival.number is not None:
        return
    placed = merged(arrival, record.entries.get(arrival.message_id))
    for entry in record.entries.values():
        if (
            entry.state.is_final
            or entry.is_passed
            or entry.message_id in done
            or entry.message_id == arrival.message_id
        ):
            continue
        if precedes(entry, placed):
            yield entry


def is_late(arrival: Arrival, record: Record, settings: Settings) -> bool:
    """
    Whether a later message of the session is finished, and no attempt at this one has started.

    Only numbers of the application show that: a stamp on one message, which any producer can write, must not decide
    about others.
    """
    known = record.entries.get(arrival.message_id)
    if known is not None and known.attempt > 0:
        return False
    return arrival.number is not None and arrival.number <= through(record.lease, settings)


def through(lease: Lease | None, settings: Settings) -> int:
    """Return the number up to which all messages of a session are finished."""
    return settings.first_number - 1 if lease is None or lease.through is None else lease.through


def progress(lease: Lease, finished: Collection[Entry]) -> dict[str, Any]:
    """Return the fields of *lease* that change when *finished* entries are written."""
    numbers = [] if lease.through is None else [lease.through]
    numbers += [entry.number for entry in finished if entry.number is not None]
    return {"through": max(numbers, default=None)}


def merged(arrival: Arrival, entry: Entry | None) -> Arrival:
    """Return *arrival* with the places where consumers at other sites saw it."""
    if entry is None:
        return arrival
    return replace(arrival, origin=entry.origin, lines={**entry.lines, **arrival.lines})
