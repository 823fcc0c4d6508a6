"""
Scheduled messages: scheduled at the target for the same time, and only then cancelled at the source.

If one becomes active at the source before it is cancelled, its copy at the target is cancelled again, and it is moved
as an active message. If that is too late too, the next survey recognises it by its content.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from copy import replace
from typing import Self

from azure.core.exceptions import AzureError
from azure.servicebus.exceptions import MessageNotFoundError

from cli.evacuate.moving import Moving
from cli.evacuate.pairs import Pair
from cli.evacuate.survey import Share, mark_of
from cli.evacuate.targets import TIMEOUT_SECONDS, management_of
from shared.amqp.values import timestamp
from shared.azure.peek import MESSAGES_AT_ONCE, Peeker
from shared.azure.receivers.raw_link import Delivery as RawDelivery
from shared.azure.senders.service_bus import translated
from shared.azure.service_bus_internals import ManagementConnection
from shared.dead_letters.delivery import Delivered, Ready, was_answered
from shared.dead_letters.edits import resent_key
from shared.dead_letters.evidence import Answer, Question, may_look
from shared.dead_letters.ledger import REFUSED, SENDING, SENT, Ledger
from shared.dead_letters.letters import Letter
from shared.dead_letters.peeking import peeked
from shared.dead_letters.places import Place, Scene
from shared.dead_letters.receiving import Held, unavailable
from shared.errors import BuswayError, MessageRejected
from shared.protocols import Output

_SCHEDULED_TIME = "x-opt-scheduled-enqueue-time"
_AT_ONCE = 50
_BYTES_AT_ONCE = 192 * 1024
_NO_LOCK_SECONDS = 1e9


class Scheduling(Moving):
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

    def prepare(self, letter: Letter) -> Ready | str:
        """Return *letter* with the time for which it is scheduled, or why it cannot be scheduled."""
        ready = super().prepare(letter)
        if isinstance(ready, str) or letter.message is None:
            return ready
        due = letter.message.arrival.scheduled_time
        if due is None:
            return "does not say when it is due"
        made = self._edits.resent(letter, self.place)
        made.set_annotations({_SCHEDULED_TIME: timestamp(due)})
        self._marks[ready.key] = mark_of(letter)
        return ready._replace(outgoing=replace(ready.outgoing, content=made.encode()))

    async def send(self, messages: Sequence[Ready]) -> Delivered:
        """Schedule *messages*."""
        result = Delivered()
        batch: list[Ready] = []
        size = 0
        for each in messages:
            size += len(each.outgoing.content)
            if batch and (size > _BYTES_AT_ONCE or len(batch) == _AT_ONCE):
                await self._schedule(batch, result)
                batch, size = [], len(each.outgoing.content)
            batch.append(each)
        await self._schedule(batch, result)
        return result

    async def _schedule(self, messages: Sequence[Ready], result: Delivered) -> None:
        keys, to = [each.key for each in messages], str(self.pair.destination)
        if result.error is not None:
            result.refused += keys
            return
        await self.ledger.note(SENDING, keys, to, marks=[self._marks[key] for key in keys])
        try:
            numbers = await self._target.schedule([each.outgoing for each in messages], TIMEOUT_SECONDS)
        except (AzureError, OSError) as error:
            await self._fail(messages, translated(to, error), result)
            return
        await self.ledger.note(SENT, keys, to, numbers=numbers)
        result.sent += keys

    async def _fail(self, messages: Sequence[Ready], error: BuswayError, result: Delivered) -> None:
        keys, to = [each.key for each in messages], str(self.pair.destination)
        if not isinstance(error, MessageRejected):
            result.error = error
            if was_answered(error):
                await self.ledger.note(REFUSED, keys, to)
                result.refused += keys
            else:
                result.unclear += keys
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
        if not await may_look(questions, stopping):
            return {}
        found = await self._copies()
        numbered = {each.key: found[each.key] for each in questions if each.key in found}
        await self.ledger.note(SENDING, numbered, to, numbers=[*numbered.values()])
        return {each.key: Answer.SENT if each.key in numbered else self._absent(each.key) for each in questions}

    async def resolve(self, scheduled: Iterable[str]) -> None:
        """Find out what happened to messages of an interrupted run that are no longer *scheduled* at the source."""
        open_ = [
            Question(key, entry, None, ())
            for key, entry in self.ledger.entries.items()
            if entry.share == Share.SCHEDULED and entry.state == SENDING and key not in set(scheduled)
        ]
        if open_:
            found = await self._copies()
            there = [each.key for each in open_ if each.key in found]
            to = str(self.pair.destination)
            await self.ledger.note(SENT, there, to, numbers=[found[key] for key in there])

    @staticmethod
    def _absent(key: str) -> Answer:  # noqa: ARG004 - one that is scheduled at the source cannot be due at the target
        return Answer.NOT_SENT

    async def _copies(self) -> dict[str, int]:
        found: dict[str, int] = {}
        async with contextlib.aclosing(peeked(self.pair.target, self.settings)) as pages:
            async for some in pages:
                for letter, _ in some:
                    key = resent_key(letter, self.place)
                    if key is not None and letter.number is not None:
                        found[key] = letter.number
        return found


class ScheduledSource:
    """Reads scheduled messages, and cancels them; it implements `shared.dead_letters.receiving.Source`."""

    def __init__(
        self, place: Place, settings: Mapping[str, str], wanted: Mapping[str, str | None], scheduling: Scheduling
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

    async def receive(self, count: int, seconds: float) -> list[Held]:
        """Read on, from the first of them."""
        peeker = Peeker(self._management, self._place.origin)
        while messages := await peeker.peek(self._next, min(count, MESSAGES_AT_ONCE)):
            highest = max((each.sequence_number or 0 for each in messages), default=0)
            if highest < self._next:
                break
            self._next = highest + 1
            letters = [Letter(each.content, self._place.origin) for each in messages if each.is_scheduled]
            found = [self._held(letter) for letter in letters if letter.key in self._wanted]
            if found:
                return found
        await asyncio.sleep(seconds)
        self._next = 1
        return []

    @staticmethod
    def _held(letter: Letter) -> Held:
        delivery = RawDelivery(letter.number or 0, b"", letter.content)
        return Held(letter.key, delivery, letter, time.monotonic() + _NO_LOCK_SECONDS, _NO_LOCK_SECONDS)

    async def complete(self, messages: Sequence[Held]) -> list[Held]:
        """Cancel messages; those that are due by now are returned, and their copies are cancelled."""
        if not messages:
            return []
        numbers = [each.delivery.delivery_id for each in messages]
        try:
            with unavailable(self._place, MessageNotFoundError):
                await self._management.cancel_scheduled(numbers, TIMEOUT_SECONDS)
        except MessageNotFoundError:
            if len(messages) > 1:
                middle = len(messages) // 2
                return [*await self.complete(messages[:middle]), *await self.complete(messages[middle:])]
            await self._scheduling.undo([each.key for each in messages if each.key is not None])
            return [*messages]
        return []

    async def give_back(self, messages: Iterable[Held]) -> None:
        """Do nothing: they are not locked."""

    async def renew(self, messages: Sequence[Held]) -> list[Held]:  # noqa: ARG002 - they are not locked
        """Lose none."""
        return []

    def may_send(self, message: Held) -> bool:  # noqa: ARG002 - it is not locked
        """Return True."""
        return True
