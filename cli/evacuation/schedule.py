"""
Scheduled messages: scheduled at the target for the same time, and only then cancelled at the source.

If one becomes active at the source before it is cancelled, its copy at the target is cancelled again, and it is moved
as an active message. If that is too late too, the next survey recognises it by its content.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Self

from azure.core.exceptions import AzureError
from azure.servicebus.exceptions import MessageNotFoundError

from cli.evacuation.move import MoveDelivery
from cli.evacuation.pairs import Pair
from cli.evacuation.receivers import TIMEOUT_SECONDS
from cli.evacuation.survey import Share, Survey, mark_of
from shared.ends.service_bus.management import ManagementConnection
from shared.ends.service_bus.peek import MESSAGES_AT_ONCE, Peeker
from shared.ends.service_bus.send_errors import translated
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.protocols import Outgoing, Output
from shared.resend.delivery import PreparedMessage
from shared.resend.evidence import Answer, Question, View, look
from shared.resend.ledger import ACCEPTED, COMPLETED, REFUSED, SENDING, SENT, Ledger
from shared.resend.letters import Letter, number_in
from shared.resend.peek import by_partition
from shared.resend.places import Destination, Place, Scene
from shared.resend.receiver import by_halves, management_of, unavailable
from shared.resend.source import LockedMessage, Source

_AT_ONCE = 50
_BYTES_AT_ONCE = 192 * 1024
_AT_TARGET = (SENDING, ACCEPTED, SENT)
"""States of a message that is, or may be, scheduled at the target and not yet cancelled at the source."""


class ScheduleDelivery(MoveDelivery):
    """Schedules messages at the target."""

    def __init__(
        self, pair: Pair, scene: Scene, ledger: Ledger, outputs: Mapping[str, Output], target: ManagementConnection
    ) -> None:
        """Schedule messages of the entity of *scene* over the connection *target*."""
        super().__init__(pair, Share.SCHEDULED, scene, ledger, outputs)
        self._target = target

    async def prepare(self, key: str, letter: Letter) -> PreparedMessage | str:
        """Return *letter* with the time for which it is scheduled, or why it cannot be scheduled."""
        ready = await super().prepare(key, letter)
        if isinstance(ready, str):
            return ready
        size, limit = len(ready.outgoing.content), self.pair.max_message_size
        if limit is not None and size > limit:
            # The service does not answer a request that is too large (Azure/azure-service-bus 697).
            return f"the target takes no message of {size:,} bytes, only up to {limit:,}"
        return ready._replace(mark=mark_of(letter))

    def parts(self, messages: Sequence[PreparedMessage]) -> Iterator[Sequence[PreparedMessage]]:
        """Yield what one request takes."""
        batch: list[PreparedMessage] = []
        size = 0
        for message in messages:
            size += len(message.outgoing.content)
            is_full = size > _BYTES_AT_ONCE or len(batch) == _AT_ONCE
            if batch and (is_full or not self._goes_with(message.outgoing, batch[-1].outgoing)):
                yield batch
                batch, size = [], len(message.outgoing.content)
            batch.append(message)
        yield batch

    def _goes_with(self, message: Outgoing, other: Outgoing) -> bool:
        """Return whether one request takes both, as a batch does (Azure/amqpnetlite 120)."""
        if not self.pair.target_is_partitioned:
            return True
        return message.order_key == other.order_key and not self.pair.drops_duplicates

    async def transfer(
        self, destination: Destination, messages: Sequence[PreparedMessage]
    ) -> Sequence[BuswayError | int | None]:
        """Schedule *messages*; one that the target refuses does not keep the others from it."""
        answers: dict[str, BuswayError | int] = {}

        async def schedule(some: Sequence[PreparedMessage]) -> None:
            outgoing = [message.outgoing for message in some]
            try:
                numbers = await self._target.schedule(outgoing, TIMEOUT_SECONDS)
            except (AzureError, OSError) as error:
                failure = translated(str(destination), error)
                if len(some) == 1:
                    answers[some[0].key] = failure
                raise failure from error
            answers.update(zip((message.key for message in some), numbers, strict=True))

        try:
            await by_halves(messages, schedule, MessageRejected)
        except (TargetUnavailable, TargetRefused) as error:
            return [answers.get(message.key, error) for message in messages]
        return [answers[message.key] for message in messages]

    async def undo(self, keys: Sequence[str]) -> None:
        """Cancel copies at the target; one that is due there too stays, and is ACCEPTED."""
        for key in keys:
            number, state = self.ledger.entries[key].number, SENDING  # without an answer it is in doubt
            try:
                if number is not None:
                    await self._target.cancel_scheduled([number], TIMEOUT_SECONDS)
                    state = REFUSED
            except MessageNotFoundError:
                state = ACCEPTED
            except (AzureError, OSError):
                self.ledger.has_sent()
            await self.ledger.note(state, [key], str(self.pair.destination))

    def visible(self, destination: Destination) -> tuple[Sequence[Place], Place | None]:
        """Return the target; no numbers are needed: nobody can take a copy before it is due."""
        return super().visible(destination)[0], None

    async def shown(self, view: View, questions: Sequence[Question], stopping: asyncio.Event) -> dict[str, Answer]:  # noqa: ARG002 - it does not wait
        """Return which copies are there: a message that is scheduled at the source cannot be due at the target."""
        there = await self._note_numbers(view, SENDING, [question.key for question in questions])
        return {question.key: Answer.SENT if question.key in there else Answer.NOT_SENT for question in questions}

    async def recognise(self, found: Survey) -> None:
        """
        Recognise in a survey what was scheduled at the target, and is not scheduled at the source any more.

        What an interrupted run has sent is looked for at the target. A message that became active at the source before
        it was cancelled there has another key since; by its mark, the ledger then knows it under that key.
        """
        scene, ledger = self.scene, self.ledger
        gone = {
            key: entry
            for key, entry in ledger.entries.items()
            if entry.share == Share.SCHEDULED and entry.state in _AT_TARGET and key not in found.scheduled
        }
        open_ = [key for key, entry in gone.items() if entry.state == SENDING]
        if open_:
            view = await look([self.pair.target], None, scene.place, scene.settings, ledger)
            await self._note_numbers(view, SENT, open_)
        pool: dict[str, list[str]] = {}
        for key, entry in gone.items():
            if entry.mark is not None:
                pool.setdefault(entry.mark, []).append(key)
        for key, mark in found.were_scheduled.items():
            if ledger.state(key) is None and pool.get(mark):
                before = pool[mark].pop()
                entry = ledger.entries[before]
                ledger.share = Share.ACTIVE
                await ledger.note(SENDING if entry.state == SENDING else SENT, [key], entry.to)
                ledger.share = Share.SCHEDULED
                await ledger.note(COMPLETED, [before], entry.to)

    async def _note_numbers(self, view: View, state: str, keys: Iterable[str]) -> list[str]:
        """Note the *state* and the numbers of the messages with *keys* that are at the target, and return them."""
        there = [key for key in keys if key in view.copies]
        numbers = [number for key in there if (number := view.copies[key].number) is not None]
        await self.ledger.note(state, there, str(self.pair.destination), numbers=numbers)
        return there


class ScheduledSource(Source):
    """Reads scheduled messages, and cancels them."""

    removes = True

    def __init__(
        self, place: Place, settings: Mapping[str, str], wanted: Mapping[str, str | None], scheduling: ScheduleDelivery
    ) -> None:
        """Read the messages *wanted*, by key, of *place*."""
        self._place = place
        self._settings = settings
        self._wanted = wanted
        self._scheduling = scheduling
        self._next = min(map(number_in, wanted), default=1)
        self._opened = contextlib.AsyncExitStack()
        self._management: ManagementConnection

    async def __aenter__(self) -> Self:
        self._management = await self._opened.enter_async_context(management_of(self._place, self._settings))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._opened.aclose()

    async def receive(self, count: int, seconds: float) -> list[LockedMessage]:
        """Read on, from the first of them."""
        peeker = Peeker(self._management, self._place.origin)
        while messages := await peeker.peek(self._next, min(count, MESSAGES_AT_ONCE)):
            highest = max((message.sequence_number or 0 for message in messages), default=0)
            if highest < self._next:
                break
            self._next = highest + 1
            letters = [Letter(message.content, self._place.origin) for message in messages if message.is_scheduled]
            found = [LockedMessage.without_lock(letter.key, letter) for letter in letters if letter.key in self._wanted]
            if found:
                return found
        await asyncio.sleep(seconds)
        self._next = 1
        return []

    async def complete(self, messages: Sequence[LockedMessage]) -> list[LockedMessage]:
        """Cancel messages; those that are due by now are returned, and their copies are cancelled."""
        due: list[LockedMessage] = []

        async def cancel(some: Sequence[LockedMessage]) -> None:
            numbers = [message.delivery.delivery_id for message in some]
            with unavailable(self._place, MessageNotFoundError):
                await self._management.cancel_scheduled(numbers, TIMEOUT_SECONDS)

        for some in by_partition(messages, lambda message: message.delivery.delivery_id):
            due += await by_halves(some, cancel, MessageNotFoundError)
        await self._scheduling.undo([message.key for message in due if message.key is not None])
        return due
