"""The journal's records of what a batch has received, and of what was decided about its messages."""

from collections.abc import Iterable, Sequence

from shared.errors import BuswayError, MessageRejected
from shared.line.deadline import Deadline
from shared.line.item import Item
from shared.line.outages import Outages
from shared.line.sender import place_of
from shared.line.states import OUTCOMES, Stage, State
from shared.line.task import Task
from shared.protocols import Entry, Flush, Journal, Outcome, Record

# What was received is recorded before it is sent, so that a journal that is away leaves few of these.
_MOST_UNWRITTEN = 100


class Records:
    """Writes the records of one task, again until the deadline of the delivery."""

    def __init__(self, task: Task, journal: Journal, outages: Outages) -> None:
        """Write to *journal*; log in *outages* when it is away."""
        self._task = task
        self._journal = journal
        self._outages = outages
        self._unwritten: list[Flush] = []

    async def received(self, entries: Sequence[Entry], batch_id: int, deadline: Deadline) -> BuswayError | None:
        """Record what was received; return the error if that is not possible."""
        return await self._write(self._journal.received(entries, batch_id), deadline) if entries else None

    async def decided(
        self, items: Iterable[Item], batch_id: int, deadline: Deadline, *, is_last: bool = True
    ) -> BuswayError | None:
        """
        Record the outcomes of *items*, whose states are terminal, once; return the error if that is not possible.

        What cannot be recorded is kept until the next outcomes are: its messages are delivered again, and then this
        instance only remembers that it has sent some of them. Unless it *is_last*, the delivery records them again.
        """
        decided = [item for item in items if not item.is_recorded]
        if not decided:
            return None
        records = [_record(self._task.name, item, has_order=self._task.has_order) for item in decided]
        unwritten, self._unwritten = [*self._unwritten, self._journal.decided(records, batch_id)], []
        while unwritten:
            error = await self._write(unwritten[0], deadline)
            if error is not None:
                kept = unwritten if is_last else unwritten[:-1]
                self._unwritten = [*kept, *self._unwritten][:_MOST_UNWRITTEN]
                return error
            del unwritten[0]
        for item in decided:
            item.is_recorded = True
        return None

    async def _write(self, flush: Flush, deadline: Deadline) -> BuswayError | None:
        try:
            await self._outages.ask(deadline, "the journal", lambda _: flush())
        except BuswayError as error:
            return error
        return None


def _record(task: str, item: Item, *, has_order: bool) -> Record:
    """Return the record of an item; without *has_order* it names no key that has an order."""
    outcome, outgoing = OUTCOMES[item.state], item.outgoing
    return Record(
        task,
        item.arrival,
        outgoing.message_id if outgoing else _id_of(item),
        outcome,
        place_of(item),
        item.reason,
        None if outcome is Outcome.SENT else _stage_of(item),
        None if outgoing is None or not has_order else outgoing.session_id or outgoing.partition_key,
        item.number,
        item.is_remembered,
        item.original.arrived,
        item.departed,
        outcome is Outcome.SENT and (item.joined is not None or item.state is State.SENT_AS_COPY),
        item.state is State.SENT and item.target is not None and item.target.binding is not None,
    )


def _id_of(item: Item) -> str | None:
    """Return the id of a message that is not sent now, or None if it is not text or cannot be read."""
    if item.message is None:
        return None
    try:
        identity = item.message.message_id
    except MessageRejected:
        return None
    return identity.payload if identity is not None and isinstance(identity.payload, str) else None


def _stage_of(item: Item) -> Stage | None:
    return item.stage if item.rejection is None else item.rejection.stage
