"""The records that were taken from a topic at once, and what the journal has of them."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cli.composed import outgoing
from shared.amqp.values import string
from shared.ends.kafka.message import TakenRecord, message_of
from shared.errors import MessageRejected
from shared.line.states import Stage
from shared.message.arrival import Arrival
from shared.message.metadata import deterministic_id, stamp
from shared.protocols import Entry, Flush, Imprint, Journal, Outcome, Outgoing, Record


class Records(NamedTuple):
    """A journal, and what it calls the command and the hub."""

    journal: Journal
    task: str
    target: str


@dataclass(slots=True, eq=False)
class Taken:
    """A record as a message, and its outcome; RETRY as long as it has none."""

    partition: int
    offset: int
    arrival: Arrival
    arrived: Imprint | None
    """What the journal keeps of it; None for a journal that keeps nothing."""
    outgoing: Outgoing
    departed: Imprint | None = None
    outcome: Outcome = Outcome.RETRY
    reason: str = "another member of the group has the partition"
    stage: Stage = Stage.SENT

    def reject(self, error: MessageRejected, stage: Stage) -> None:
        """Set it aside for an *error*."""
        self.outcome, self.reason, self.stage = Outcome.REJECTED, str(error), stage

    def record(self, task: str, target: str) -> Record:
        """Return its outcome for the journal."""
        is_sent = self.outcome is Outcome.SENT
        return Record(
            task,
            self.arrival,
            self.outgoing.message_id,
            self.outcome,
            target,
            None if is_sent else self.reason,
            None if is_sent else self.stage,
            self.outgoing.order_key,
            arrived=self.arrived,
            departed=self.departed,
        )


def taken(
    record: TakenRecord, site: str, topic: str, journal: Journal, *, is_event_hub: bool = False
) -> tuple[Taken, MessageRejected | None]:
    """Return a record of a *topic* as the message that a hub gets, and why no hub can get it."""
    message = message_of(record, site, topic, is_event_hub=is_event_hub)
    arrived = journal.arriving(message)
    error = MessageRejected("MalformedMessage", "the name of a header is not UTF-8") if record.headers is None else None
    try:
        if not message.has_message_id:
            identity = deterministic_id(message.arrival)
            message.message_id = None if identity is None else string(identity)
        stamp(message)
    except MessageRejected as rejection:
        error = rejection
    found = Taken(record.partition, record.offset, message.arrival, arrived, outgoing(message))
    if error is not None:
        found.reject(error, Stage.STAMPED)
    elif arrived is not None:
        found.departed = journal.departing(message, arrived)
    return found, error


class Batch:
    """Messages of one or more partitions; the journal has them by partition, as it has those of a hub."""

    def __init__(self, messages: Sequence[Taken], numbers: Iterator[int]) -> None:
        """Give the messages of each partition the next of *numbers*, by which the journal knows them."""
        shares: dict[int, list[Taken]] = {}
        for message in messages:
            shares.setdefault(message.partition, []).append(message)
        self._shares = {next(numbers): share for share in shares.values()}
        self._messages = messages

    def unsent(self, lost: Collection[int]) -> list[Taken]:
        """Return the messages without an outcome, except those of *lost* partitions."""
        return [
            message for message in self._messages if message.outcome is Outcome.RETRY and message.partition not in lost
        ]

    def next_offsets(self) -> dict[int, int]:
        """Return where each partition goes on."""
        return {message.partition: message.offset + 1 for message in self._messages}

    def uncommitted(self, lost: Collection[int]) -> str:
        """Return how many messages come again, except those of *lost* partitions, and from where."""
        found = [message for message in self._messages if message.partition not in lost]
        starts = {each.partition: each.offset for each in reversed(found)}
        places = ", ".join(f"partition {partition} from offset {start}" for partition, start in sorted(starts.items()))
        sent = sum(each.outcome is Outcome.SENT for each in found)
        return f"{len(found)} records are not committed and come again, {sent} of them sent: {places or 'none'}"

    def received(self, records: Records) -> list[Flush]:
        """Return what writes that the messages were received."""
        return [
            records.journal.received(
                [Entry(each.arrival, each.arrived) for each in share if each.arrived is not None], number
            )
            for number, share in self._shares.items()
            if share[0].arrived is not None
        ]

    def decided(self, records: Records) -> list[Flush]:
        """Return what writes the outcomes."""
        return [
            records.journal.decided([each.record(records.task, records.target) for each in share], number)
            for number, share in self._shares.items()
        ]
