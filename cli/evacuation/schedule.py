"""
Scheduled messages: scheduled at the target for the same time, and only then cancelled at the source.

If one becomes active at the source before it is cancelled, its copy at the target is cancelled again, and it is moved
as an active message. If that is too late too, the next survey recognises it by its content.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from copy import replace
from typing import Self

from azure.core.exceptions import AzureError
from azure.servicebus.exceptions import MessageNotFoundError

from cli.evacuation.move import MoveDelivery, dropped
from cli.evacuation.pairs import Pair
from cli.evacuation.receivers import TIMEOUT_SECONDS
from cli.evacuation.survey import Share, mark_of
from shared.amqp.values import timestamp
from shared.ends.service_bus.management import ManagementConnection
from shared.ends.service_bus.peek import MESSAGES_AT_ONCE, Peeker
from shared.ends.service_bus.send_errors import translated
from shared.errors import BuswayError, MessageRejected
from shared.protocols import Outgoing, Output
from shared.resend.delivery import Attempt, PreparedMessage, was_answered
from shared.resend.evidence import Answer, Question, copies_of, may_look
from shared.resend.ledger import REFUSED, SENDING, SENT, Ledger
from shared.resend.letters import Letter
from shared.resend.peek import by_partition
from shared.resend.places import Place, Scene
from shared.resend.receiver import by_halves, management_of, unavailable
from shared.resend.source import LockedMessage, UnlockedSource

_SCHEDULED_TIME = "x-opt-scheduled-enqueue-time"
_AT_ONCE = 50
_BYTES_AT_ONCE = 192 * 1024


class ScheduleDelivery(MoveDelivery):
    """Schedules messages at the target."""

    def __init__(self, pair: Pair, scene: Scene, ledger: Ledger, outputs: Mapping[str, Output]) -> None:
        """Schedule messages of the entity of *scene*; `opened` opens the connection."""
        super().__init__(pair, Share.SCHEDULED, scene, ledger, outputs)
        self._target: ManagementConnection
        self._marks: dict[str, str] = {}

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[Self]:
        """Open the connection to the target."""
        async with management_of(self.pair.target, self.settings) as self._target:
            yield self

    async def prepare(self, key: str, letter: Letter) -> PreparedMessage | str:
        """Return *letter* with the time for which it is scheduled, or why it cannot be scheduled."""
        ready = await super().prepare(key, letter)
        if isinstance(ready, str) or letter.message is None:
            return ready
        due = letter.message.arrival.scheduled_time
        if due is None:
            return "does not say when it is due"
        made = self._edits.resent(letter, self.place, self.ledger)
        made.set_annotations({_SCHEDULED_TIME: timestamp(due)})
        self._marks[key] = mark_of(letter)
        content, limit = made.encode(), self.pair.max_message_size
        if limit is not None and len(content) > limit:
            # The service does not answer a request that is too large (Azure/azure-service-bus 697).
            return f"the target takes no message of {len(content):,} bytes, only up to {limit:,}"
        return ready._replace(outgoing=replace(ready.outgoing, content=content))

    async def send(self, messages: Sequence[PreparedMessage]) -> Attempt:
        """Schedule *messages*."""
        result = Attempt()
        batch: list[PreparedMessage] = []
        size = 0
        for message in messages:
            size += len(message.outgoing.content)
            is_full = size > _BYTES_AT_ONCE or len(batch) == _AT_ONCE
            if batch and (is_full or not self._goes_with(message.outgoing, batch[-1].outgoing)):
                await self._schedule(batch, result)
                batch, size = [], len(message.outgoing.content)
            batch.append(message)
        await self._schedule(batch, result)
        return result

    def _goes_with(self, message: Outgoing, other: Outgoing) -> bool:
        """Return whether one request takes both, as a batch does (Azure/amqpnetlite 120)."""
        if not self.pair.target_is_partitioned:
            return True
        return message.order_key == other.order_key and not self.pair.drops_duplicates

    async def _schedule(self, messages: Sequence[PreparedMessage], result: Attempt) -> None:
        keys, to = [message.key for message in messages], str(self.pair.destination)
        if result.error is not None:
            result.refused += keys
            return
        await self.ledger.note(SENDING, keys, to, marks=[self._marks[key] for key in keys])
        try:
            numbers = await self._target.schedule([message.outgoing for message in messages], TIMEOUT_SECONDS)
        except (AzureError, OSError) as error:
            await self._fail(messages, translated(to, error), result)
            return
        if self.pair.drops_duplicates:
            # One whose id the target has seen gets a number too, and is dropped (Azure/azure-service-bus 265).
            there = await self._copies()
            lost = [key for key in keys if key not in there]
            result.rejected |= dict.fromkeys(lost, dropped(self.pair))
            await self.ledger.note(REFUSED, lost, to)
            numbers = [number for key, number in zip(keys, numbers, strict=True) if key in there]
            keys = [key for key in keys if key in there]
        await self.ledger.note(SENT, keys, to, numbers=numbers)
        result.sent += keys

    async def _fail(self, messages: Sequence[PreparedMessage], error: BuswayError, result: Attempt) -> None:
        keys, to = [message.key for message in messages], str(self.pair.destination)
        if not isinstance(error, MessageRejected):
            result.error = error
            if was_answered(error):
                await self.ledger.note(REFUSED, keys, to)
                result.refused += keys
            else:
                result.unclear += keys
                self.ledger.has_sent()
            return
        await self.ledger.note(REFUSED, keys, to)
        if len(messages) == 1:
            result.rejected[keys[0]] = f"the target refuses it: {error.description}"
            return
        middle = len(messages) // 2
        await self._schedule(messages[:middle], result)
        await self._schedule(messages[middle:], result)

    async def undo(self, keys: Sequence[str]) -> None:
        """Cancel copies at the target; one that is active there by now stays."""
        for key in keys:
            number = self.ledger.entries[key].number
            if number is not None:
                with contextlib.suppress(AzureError, OSError):
                    await self._target.cancel_scheduled([number], TIMEOUT_SECONDS)
                    await self.ledger.note(REFUSED, [key], str(self.pair.destination))

    async def answers(self, to: str, questions: Sequence[Question], stopping: asyncio.Event) -> Mapping[str, Answer]:
        """Look for the copies: nobody can take one before it is due."""
        if not await may_look((question.entry for question in questions), self.ledger, stopping):
            return {}
        found = await self._copies()
        numbered = {question.key: found[question.key] for question in questions if question.key in found}
        await self.ledger.note(SENDING, numbered, to, numbers=[*numbered.values()])
        return {
            question.key: Answer.SENT if question.key in numbered else self._absent(question.key)
            for question in questions
        }

    async def resolve(self, scheduled: Iterable[str]) -> None:
        """Find out what happened to messages of an interrupted run that are no longer *scheduled* at the source."""
        open_ = [
            Question(key, entry, None, ())
            for key, entry in self.ledger.entries.items()
            if entry.share == Share.SCHEDULED and entry.state == SENDING and key not in set(scheduled)
        ]
        if open_:
            found = await self._copies()
            there = [question.key for question in open_ if question.key in found]
            to = str(self.pair.destination)
            await self.ledger.note(SENT, there, to, numbers=[found[key] for key in there])

    @staticmethod
    def _absent(key: str) -> Answer:  # noqa: ARG004 - one that is scheduled at the source cannot be due at the target
        return Answer.NOT_SENT

    async def _copies(self) -> dict[str, int]:
        async with contextlib.aclosing(copies_of(self.place, self.pair.target, self.settings, self.ledger)) as copies:
            return {key: letter.number async for key, letter, _ in copies if letter.number is not None}


class ScheduledSource(UnlockedSource):
    """Reads scheduled messages, and cancels them; it is a `Source`."""

    removes = True

    def __init__(
        self, place: Place, settings: Mapping[str, str], wanted: Mapping[str, str | None], scheduling: ScheduleDelivery
    ) -> None:
        """Read the messages *wanted*, by key, of *place*."""
        self._place = place
        self._settings = settings
        self._wanted = wanted
        self._scheduling = scheduling
        self._next = min((int(key.partition("/")[0]) for key in wanted), default=1)
        self._opened = contextlib.AsyncExitStack()
        self._management: ManagementConnection

    async def __aenter__(self) -> Self:
        """Open the connection."""
        self._management = await self._opened.enter_async_context(management_of(self._place, self._settings))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connection."""
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
        for some in by_partition(messages, lambda message: message.delivery.delivery_id):
            due += await by_halves(some, self._cancel, MessageNotFoundError)
        await self._scheduling.undo([message.key for message in due if message.key is not None])
        return due

    async def _cancel(self, messages: Sequence[LockedMessage]) -> None:
        numbers = [message.delivery.delivery_id for message in messages]
        with unavailable(self._place, MessageNotFoundError):
            await self._management.cancel_scheduled(numbers, TIMEOUT_SECONDS)
