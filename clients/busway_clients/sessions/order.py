"""The order of messages in a session: what must be finished before a message may be processed."""

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from busway_clients.sessions.arrival import Arrival
from busway_clients.sessions.entries import Entry
from busway_clients.sessions.leases import Lease, Record
from busway_clients.sessions.settings import Settings


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
