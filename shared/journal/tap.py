"""Records the observations of a tap: independent evidence of what a task has received or sent."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass
from datetime import datetime
from itertools import count

from shared.amqp.values import Malformed
from shared.clock import Clock, SystemClock
from shared.errors import TargetUnavailable
from shared.journal.imprints import Imprinter, of_unreadable
from shared.journal.lines import member
from shared.journal.record import SEEN, VERSION, Observer, Role
from shared.journal.recording import ReceivedLine, content_line, microseconds, partition_number, place_of
from shared.journal.sink import Sink, Stream
from shared.message.arrival import Origin
from shared.message.heartbeat import heartbeat_in
from shared.message.message import Message
from shared.message.metadata import ENQUEUE_TIME, SEPARATOR, SEQUENCE, entity_that_gave_up, visited_sites
from shared.message.replay import replay_of
from shared.rules import Action

_LOGGER = logging.getLogger("busway.journal")

_SERVICE_BUS_PARTITION = 0
_LEAST_NUMBER, _MOST_NUMBER = -(2**63), 2**63 - 1
# Each abandoned batch costs its messages a delivery, so a short outage of the journal is waited out.
_WAITS_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0)


@dataclass
class Tap:
    """
    Writes records of the messages at one place for the journal of the observed task.

    At the target, the stamps of the last hop identify the message of the source. At the source, a message is identified
    only if the tap sees the same sequence numbers as the task: in a hub, or in the same queue.
    """

    name: str
    task: str
    role: Role
    _: KW_ONLY
    watched: Origin
    """The source of the task."""
    is_hub_watched: bool
    place: Origin
    target: str
    """The task's name for the place: for a subscription, its topic."""
    is_hub: bool
    has_same_numbers: bool
    is_peek: bool = False
    sink: Sink
    actions: InitVar[Iterable[Action]] = ()
    """Those of the task's rule and routes."""
    clock: InitVar[Clock | None] = None
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    def __post_init__(self, actions: Iterable[Action], clock: Clock | None) -> None:
        """Leave out of the imprints what the *actions* change."""
        self._imprinter = Imprinter(actions)
        self._clock = clock or SystemClock()
        self._batch_ids = count(1)

    async def see(self, batch: Sequence[bytes], partition: str | None = None) -> None:
        """
        Write a record for each encoded message of *batch*; heartbeats have none.

        Raises: TargetUnavailable or TargetRefused if they cannot be written; the batch must then be delivered again.
        """
        origin = self.place if partition is None else self.place._replace(partition=partition)
        by_task: dict[str, list[ReceivedLine]] = {}
        for content in batch:
            found = self._line(content, origin)
            if found is not None:
                by_task.setdefault(found[0], []).append(found[1])
        for task, lines in by_task.items():
            await self._write(task, member(lines, {**self._constants(partition), "task": task}))

    async def _write(self, task: str, content: bytes) -> None:
        for wait in _WAITS_SECONDS:
            try:
                await self.sink.append(Stream(task, self.role), content)
            except TargetUnavailable as error:
                _LOGGER.warning("%s: next attempt in %.1f s: %s", self.name, wait, error)
                await self.sleep(wait)
            else:
                return
        await self.sink.append(Stream(task, self.role), content)

    def _constants(self, partition: str | None) -> dict[str, object]:
        constants: dict[str, object] = {
            "v": VERSION,
            "task": self.task,
            "role": self.role,
            "observer": Observer.TAP,
            "tap": self.name,
            "outcome": SEEN,
        }
        if self.is_peek:
            # A message may have been sent and consumed between two peeks.
            constants["peek"] = True
        is_known = self.role is Role.SOURCE and self.has_same_numbers
        watched = self.watched._replace(partition=partition) if is_known else self.watched
        constants |= place_of(watched, is_hub=self.is_hub_watched)
        if self.role is Role.TARGET:
            constants["target"] = self.target
        part = partition_number(partition) if self.is_hub else _SERVICE_BUS_PARTITION
        if part is not None:
            constants["tgt_part"] = part
        return constants | {
            "batch_id": next(self._batch_ids),
            "instance": self.sink.instance,
            "journal_time": round(self._clock.now().timestamp() * 1_000_000),
        }

    def _line(self, content: bytes, origin: Origin) -> tuple[str, ReceivedLine] | None:
        """Return the task that a record is for, a replay having a name of its own, and the record; None for none."""
        try:
            message = Message.received(content, origin)
        except Malformed:
            return self.task, content_line(None, None, of_unreadable(content))
        if heartbeat_in(message) is not None:
            return None
        arrival = message.arrival
        imprint = self._imprinter.arriving(message)
        if self.role is Role.TARGET:
            sequence, enqueued = self._identity(message)
            hops = [*imprint.hops]
        else:
            sequence = arrival.sequence_number if self.has_same_numbers else None
            enqueued = arrival.enqueued_time
            hops = [*imprint.hops, self.watched.site]
        line = content_line(sequence, enqueued, imprint)
        line.tgt_seq, line.tgt_enqueued_time = arrival.sequence_number, microseconds(arrival.enqueued_time)
        line.hops = tuple(hops) or None
        line.given_up_by = entity_that_gave_up(arrival)
        if line.given_up_by is not None:
            line.dead_letter_reason = imprint.dead_letter_reason
        replay = replay_of(message, self.task) if self.role is Role.TARGET else None
        return replay or self.task, line

    def _identity(self, message: Message) -> tuple[int | None, int | None]:
        """Return sequence number and enqueued time (ms) of the original by the stamps of the last hop."""
        try:
            if not message.sections.application_properties or visited_sites(message)[-1:] != [self.watched.site]:
                return None, None
            sequence, enqueued = _last(message, SEQUENCE), _last(message, ENQUEUE_TIME)
            number = None if sequence is None else int(sequence)
            if number is not None and not _LEAST_NUMBER <= number <= _MOST_NUMBER:
                return None, None
            return number, None if enqueued is None else round(datetime.fromisoformat(enqueued).timestamp() * 1000)
        except (Malformed, ValueError):
            return None, None  # somebody else's stamps


def _last(message: Message, name: str) -> str | None:
    value = message.application_property(name)
    if value is None or not isinstance(value.payload, str):
        return None
    return value.payload.rpartition(SEPARATOR)[2]
