"""The journal's records of what a batch has received, and of what was decided about its messages."""

from collections.abc import Iterable, Sequence

from shared.errors import BuswayError, MessageRejected
from shared.line.accepted_sends import identity_of
from shared.line.batch import Batch
from shared.line.deadline import Deadline
from shared.line.item import Item
from shared.line.outages import Outages
from shared.line.sender import place_of
from shared.line.states import OUTCOMES, Stage, State
from shared.line.task import Task
from shared.protocols import Entry, Flush, Journal, Outcome, Record

# What was received is recorded before it is sent, so that a journal that is away leaves few of these.
_MOST_UNWRITTEN = 100
_LASTING = (Outcome.SENT, Outcome.REJECTED)


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
        self, batch: Batch, items: Iterable[Item], batch_id: int, deadline: Deadline
    ) -> BuswayError | None:
        """
        Record the outcomes of *items* of *batch*, whose states are terminal; return the error if that is not possible.

        What cannot be recorded is kept as it is for the next call, because it may have been written all the same.
        """
        new = [item for item in items if not item.is_recorded]
        if new:
            records = [_record(self._task.name, item, has_order=self._task.has_order) for item in new]
            batch.unwritten.append(self._journal.decided(records, batch_id))
            for item in new:
                item.is_recorded = True
        earlier, self._unwritten = self._unwritten, []
        error = await self._write_all(earlier, deadline) or await self._write_all(batch.unwritten, deadline)
        self._unwritten = [*earlier, *self._unwritten]
        return error

    def keep(self, batch: Batch) -> None:
        """
        Keep what *batch* could not record until the next outcomes are recorded.

        Its messages are delivered again, and then this instance only remembers that it has sent some of them.
        """
        self._unwritten = [*self._unwritten, *batch.unwritten][:_MOST_UNWRITTEN]
        batch.unwritten.clear()

    async def _write_all(self, flushes: list[Flush], deadline: Deadline) -> BuswayError | None:
        """Write *flushes* in their order, and remove those that are written."""
        while flushes:
            error = await self._write(flushes[0], deadline)
            if error is not None:
                return error
            del flushes[0]
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
    is_handed_over = item.state is State.SENT and item.target is not None and item.target.binding is not None
    return Record(
        task,
        item.arrival,
        outgoing.message_id if outgoing else _id_of(item),
        outcome,
        place_of(item),
        item.reason,
        None if outcome is Outcome.SENT else _stage_of(item),
        None if outgoing is None or not has_order else outgoing.order_key,
        item.number,
        item.is_remembered,
        item.original.arrived,
        item.departed,
        outcome is Outcome.SENT and (item.joined is not None or item.state is State.SENT_AS_COPY),
        is_handed_over,
        None if is_handed_over else _identity(item),
    )


def _identity(item: Item) -> bytes | None:
    """Return the identity of a share whose result holds at every delivery."""
    # If a dead letter is delivered again, it could not be moved, and must be tried again.
    if item.state is not State.DEAD_LETTERED and item.is_share and item.key and OUTCOMES[item.state] in _LASTING:
        return identity_of(item.key)
    return None


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
