"""The hops of a message, from the records of its journals."""

from collections.abc import Iterable
from typing import NamedTuple

from shared.journal.record import Record

_WITHOUT_END = {"received", "seen"}


class Place(NamedTuple):
    """The message at the source of a task: the task, the entity with its partition, and the sequence number there."""

    task: str
    site: str
    entity: str
    partition: int
    sequence_number: int | None
    message_id: str | None
    """Only without a sequence number: a source that does not show it."""


_SECOND = 1_000_000
"""In microseconds."""


class Hop(NamedTuple):
    """The records of a message in one task and its taps, in order of time."""

    place: Place
    records: list[Record]

    @property
    def began(self) -> int:
        """When the source enqueued the message, or else when it was first seen; in microseconds since 1970 UTC."""
        known = [int(record["enqueued_time"]) for record in self.records if "enqueued_time" in record]
        # A storage queue reports whole seconds: the message came within this one.
        known = [each if each % _SECOND else each + _SECOND - 1 for each in known]
        return min([*known, int(self.records[0]["journal_time"])])

    @property
    def outcomes(self) -> list[Record]:
        """The task's last outcome for each part and target of the message, in the order of their numbers."""
        last: dict[int, Record] = {}
        for record in self.records:
            if record["observer"] == "task" and record["outcome"] not in _WITHOUT_END:
                last[record.get("part") or 0] = record
        return [last[part] for part in sorted(last)]

    @property
    def outcome(self) -> Record | None:
        """The task's last outcome, or that of a part or target that still waits; None if it has recorded none."""
        found = self.outcomes
        waiting = [record for record in found if record["outcome"] == "retry"]
        return max(waiting or found, key=lambda record: int(record["journal_time"]), default=None)

    @property
    def unrecorded(self) -> int:
        """How many parts and targets have no outcome on record, if others have one."""
        parts = max((int(record.get("parts") or 1) for record in self.records), default=1)
        return max(parts - len(self.outcomes), 0)

    def changes(self) -> list[str]:
        """Return what the editors of the task changed, as far as the journal has it."""
        received = next((record for record in self.records if record["outcome"] == "received"), None)
        sent = [record for record in self.records if record["outcome"] == "sent" and record.get("edited")]
        if received is None or not sent:
            return []
        found: dict[str, None] = {}
        for each in sent:
            part = f"part {each['part']}: " if "part" in each else ""
            if each.get("body_digest", received.get("body_digest")) != received.get("body_digest"):
                sizes = f"{received.get('body_size', 0):,} to {each.get('body_size', 0):,} bytes"
                found[f"{part}an editor changed the body, {sizes}"] = None
            if each.get("property_digest", received.get("property_digest")) != received.get("property_digest"):
                found[f"{part}an editor changed the properties"] = None
            for name, text in (("message_id", "message id"), ("order_key", "session id or partition key")):
                if name in each and each[name] != received.get(name):
                    found[f"{part}the {text} became {each[name]}"] = None
        return list(found)


def place_of(record: Record) -> Place:
    """Return where *record* saw the message."""
    number = record.get("src_seq")
    partition = record.get("src_part") or 0
    other = record.get("message_id") if number is None else None
    return Place(record["task"], record["src_site"], record["src_entity"], partition, number, other)


class EnqueuedTimes:
    """
    When the source enqueued what a record is about.

    The numbers of an entity begin again when it is created again, or its alias leads to another namespace. An outcome
    has no such time: it is that of what its instance received with the same batch.
    """

    def __init__(self) -> None:
        """Know none."""
        self._of_batch: dict[tuple[Place, str, int], int] = {}

    def note(self, record: Record) -> None:
        """Remember the time of *record*, if it has one."""
        if record.get("enqueued_time") is not None:
            self._of_batch[_batch_of(record)] = record["enqueued_time"]

    def of(self, record: Record) -> int | None:
        """Return the time for *record*, None if it is not known."""
        time: int | None = record.get("enqueued_time")
        return self._of_batch.get(_batch_of(record)) if time is None else time


def _batch_of(record: Record) -> tuple[Place, str, int]:
    return place_of(record), record["instance"], record["batch_id"]


def hops(records: Iterable[Record]) -> list[Hop]:
    """Return the hops of *records*, the earliest first."""
    ordered = sorted(records, key=lambda record: (record["journal_time"], record["role"] == "target"))
    times = EnqueuedTimes()
    for record in ordered:
        times.note(record)
    found: dict[Place, dict[int | None, list[Record]]] = {}
    for record in ordered:
        of_place = found.setdefault(place_of(record), {})
        time = times.of(record)
        if time is None and of_place:
            time = [*of_place][-1]  # that of the message that had the number last
        of_place.setdefault(time, []).append(record)
    messages = (Hop(place, of_time) for place, of_place in found.items() for of_time in of_place.values())
    return sorted(messages, key=lambda hop: (hop.began, hop.place.task))
