"""Marked messages on their way through one task from a queue or subscription to a queue."""

import asyncio
import contextlib
import os
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from cli.composed import composed, outgoing
from cli.pause.entity import ACTIVE, Entity
from shared.amqp import sections
from shared.amqp.codec import decode_all
from shared.amqp.values import string
from shared.assembly.outputs import closing_outputs
from shared.errors import BuswayError
from shared.protocols import Outgoing
from shared.resend.letters import Letter
from shared.resend.peek import peek
from shared.resend.places import Place, entity_named, queue_of
from shared.tasks.files import Configuration
from shared.tasks.models import TaskFile
from shared.tasks.source import Source

MARK = "busway-first-hour"
_CLOSED = "SendDisabled"
_LIFE_MILLISECONDS = 4 * 60 * 60 * 1000
_KEYS = 10
_BATCH = 100
_SEND_SECONDS = 60.0
_DELIVERY_COUNT = 4


class Way:
    """The way of one task by its first route, with what was sent on it."""

    def __init__(self, configuration: Configuration, task: TaskFile) -> None:
        """Use a task of which `obstacle` says nothing."""
        self.task = task
        self._configuration = configuration
        self._settings = os.environ
        self._run = uuid.uuid4().hex[:8]
        self.sent = 0
        target = next(iter(task.branches())).target
        self.source = queue_of(task.task, configuration)
        self.target = entity_named(f"{target.connection}/{target.queue}", configuration)
        end = Source(connection=target.connection, queue=target.queue)
        self._target = Entity(end, configuration.connections[target.connection])

    async def send(self, count: int) -> None:
        """Send *count* messages to the source, in ten sessions if it has sessions; raises BuswayError."""
        source = self.task.source
        for error in await self._send(source.connection, source.sent_to, count):
            raise error

    async def send_keyed(self, alias: str, queue: str, count: int) -> list[BuswayError]:
        """Send *count* messages with ten partition keys to another queue, and return why some were refused."""
        before = self.sent
        try:
            return await self._send(alias, queue, count, has_keys=True)
        finally:
            self.sent = before

    async def _send(self, alias: str, entity: str, count: int, *, has_keys: bool = False) -> list[BuswayError]:
        errors: list[BuswayError | None] = []
        async with closing_outputs(self._configuration, self._settings) as outputs:
            for first in range(0, count, _BATCH):
                numbers = range(self.sent, self.sent + min(_BATCH, count - first))
                messages = [self._message(number, has_key=has_keys) for number in numbers]
                errors += await outputs[alias].send(entity, messages, timeout_seconds=_SEND_SECONDS)
                self.sent += len(numbers)
        return [error for error in errors if error is not None]

    def _message(self, number: int, *, has_key: bool) -> Outgoing:
        has_session = bool(self.task.source.sessions) and not has_key
        message = composed(
            b"{}",
            {MARK: string(self._run)},
            message_id=f"{MARK}-{self._run}-{'key' * has_key}{number}",
            time_to_live=_LIFE_MILLISECONDS,
            partition_key=str(number % _KEYS) if has_key else None,
            session_id=f"{MARK}-{number % _KEYS}" if has_session else None,
        )
        return outgoing(message)

    async def at_source(self) -> list[Letter]:
        """Return the messages that wait at the source."""
        return await self._seen(self.source)

    async def given_up(self) -> list[Letter]:
        """Return the messages among the dead letters of the source."""
        return await self._seen(self.source.dead_letters())

    async def all_arrived(self, seconds: float) -> Counter[str]:
        """Return how often each message is at the target, once all are, or after *seconds*."""
        loop = asyncio.get_running_loop()
        limit = loop.time() + seconds
        while True:
            found = Counter(str(letter.message_id) for letter in await self._seen(self.target))
            if len(found) >= self.sent or loop.time() >= limit:
                return found
            await asyncio.sleep(min(1.0, seconds / 10))

    @contextlib.contextmanager
    def target_closed(self) -> Iterator[None]:
        """Let the target queue refuse messages inside the block; raises BuswayError."""
        self._target.change(ACTIVE, _CLOSED)
        try:
            yield
        finally:
            self._target.change(_CLOSED, ACTIVE)

    async def _seen(self, place: Place) -> list[Letter]:
        async with contextlib.aclosing(peek(place, self._settings)) as letters:
            return [letter async for letter, _ in letters if letter.text(MARK) == self._run]


def obstacle(configuration: Configuration, task: TaskFile) -> str | None:
    """Return why the way of *task* cannot be used, None if it can."""
    target = next(iter(task.branches())).target
    ends = (configuration.connections[alias].end for alias in (task.source.connection, target.connection))
    if task.source.hub is not None or target.queue is None or not all(end.has_dead_letters for end in ends):
        return f"{task.task}: expected a way from a queue or subscription to a queue of Service Bus"
    if task.source.dead_letter:
        return f"{task.task}: nobody can send to its source, a dead-letter queue"
    return None


def most_deliveries(letters: Iterable[Letter]) -> int:
    """Return the largest number of earlier deliveries of *letters*, 0 without any."""
    most = 0
    for letter in letters:
        header = sections.split(letter.content).header
        fields: Sequence[bytes] = list(sections.fields_of(header)) if header else []
        found = decode_all(fields[_DELIVERY_COUNT]).payload if len(fields) > _DELIVERY_COUNT else None
        most = max(most, found) if isinstance(found, int) else most
    return most
