"""
Sending of given-up messages again: each is sent, recorded, and only then completed.

Messages of one session are sent in the order of their sequence numbers. A message that a killed run has locked comes
back when its lock ends; until then those behind it in its session are held.
"""

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from shared.dead_letters.delivery import Delivery, Ready
from shared.dead_letters.evidence import Answer, Question, by_destination
from shared.dead_letters.ledger import COMPLETED, OPEN, REFUSED, SENT
from shared.dead_letters.pace import Pace
from shared.dead_letters.peeking import peeked
from shared.dead_letters.places import Scene
from shared.dead_letters.receiving import Held, OpenSource, Receiver, SessionUnavailable, Source
from shared.dead_letters.unclear import Unclear
from shared.errors import BuswayError, TargetRefused, TargetUnavailable

AT_ONCE = 100
NOT_REACHED = "not reached: the run ended before it"
PATIENCE_SECONDS = 330.0
"""Longer than the longest lock of Service Bus, five minutes."""

_RECEIVE_SECONDS = 1.0
_LOOK_AFTER_SECONDS = 5.0
_HELD_BYTES = 64 * 2**20
_WAITS = (0.5, 1.0, 2.0, 4.0, 8.0)
_LONGEST_WAIT = 15.0
_TICK_SECONDS = 0.2
_RENEWAL_SECONDS = 0.5


class Options(NamedTuple):
    """How a run proceeds."""

    rate: float | None = None
    """Messages per second at most."""
    unclear: Unclear = Unclear.LEAVE
    patience: float = PATIENCE_SECONDS
    """Seconds to wait for messages that another receiver has locked."""


class Result:
    """What happened to the selected messages."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.sent = 0
        self.completed_only = 0
        """Sent by an earlier run, which was interrupted before it could complete them."""
        self.sent_before = 0
        """Not sent from a file, because an earlier run had sent them."""
        self.gone = 0
        self.left: dict[str, str] = {}
        """The reason for each message that stays, by key."""
        self.error: BuswayError | None = None
        self.is_stopped = False

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to do."""
        return not self.left and self.error is None and not self.is_stopped


class Resend:
    """One run over the messages of one entity."""

    def __init__(
        self,
        scene: Scene,
        wanted: Mapping[str, str | None],
        delivery: Delivery,
        options: Options,
        progress: Callable[[int], None] = lambda _: None,
        *,
        open_source: OpenSource | None = None,
        by_session: bool | None = None,
    ) -> None:
        """
        Send the messages *wanted*: the session of each by its key, in the order of the entity.

        They come from what *open_source* opens, by default the entity itself; *by_session* says whether that works on
        one session after the other, None that the entity says so.
        """
        self.result = Result()
        self._scene = scene
        self._place = scene.place
        self._todo = dict(wanted)
        self._ledger = ledger = delivery.ledger
        self._delivery = delivery
        self._settings = scene.settings
        self._open_source = open_source or partial(Receiver, self._place, self._settings)
        self._by_session = False if self._place.is_dead_letter_queue else by_session
        self._options = options
        self._progress = progress
        self._stopping = asyncio.Event()
        self._sessions: dict[str, deque[str]] = {}
        for key, session_id in wanted.items():
            if session_id is not None and ledger.state(key) not in (SENT, COMPLETED):
                self._sessions.setdefault(session_id, deque()).append(key)
        self._held: dict[str, Held] = {}
        self._held_bytes = 0
        self._skipped: dict[str | None, Held] = {}
        self._failures = 0
        self._pace = Pace()
        self._has_sent = False
        self._renewed = 0.0
        self._counts = Counter(self._todo.values())

    def stop(self) -> None:
        """End the run after the step that is under way."""
        self.result.is_stopped = True
        self._stopping.set()

    async def run(self) -> Result:
        """Send and complete the messages; errors are in the result."""
        while self._todo and not self._is_over():
            try:
                await self._resolve([key for key in self._todo if self._ledger.state(key) in OPEN])
                await self._receive_and_send()
            except TargetRefused as error:
                self.result.error = error
            except TargetUnavailable as error:
                self._failures += 1
                if self._failures > len(_WAITS):
                    self.result.error = error
                else:
                    await self._sleep(_WAITS[self._failures - 1])
        for key in self._todo:
            self.result.left.setdefault(key, NOT_REACHED)
        return self.result

    def _is_over(self) -> bool:
        return self._stopping.is_set() or self.result.error is not None

    async def _receive_and_send(self) -> None:
        """Work through the entity, or through one session after the other if it requires sessions."""
        if not self._by_session:
            try:
                return await self._work(None)
            except TargetRefused as error:
                if self._by_session is not None or "amqp:not-allowed" not in str(error):
                    raise
        for session_id in dict.fromkeys(self._todo.values()):
            if self._is_over():
                return None
            if session_id is None:
                self._leave([key for key, each in self._todo.items() if each is None], "has no session id")
                continue
            try:
                await self._work(session_id)
            except SessionUnavailable as error:
                self._leave(self._keys_of(session_id), str(error))
        return None

    async def _work(self, session_id: str | None) -> None:
        """Receive from the entity, or from one session, until nothing of it is left to do."""
        async with self._open_source(session_id) as receiver:
            try:
                await self._work_with(receiver, session_id)
            finally:
                held = [*self._held.values(), *self._skipped.values()]
                self._held, self._skipped, self._held_bytes = {}, {}, 0
                await receiver.give_back(held)

    async def _work_with(self, receiver: Source, session_id: str | None) -> None:
        moved = time.monotonic()
        while self._remaining(session_id) and not self._is_over():
            await self._renew(receiver)
            batch = self._batch(receiver)
            if batch:
                await self._send(receiver, batch)
                moved = time.monotonic()
                continue
            is_full = self._held_bytes > _HELD_BYTES
            if is_full:
                await self._sleep(_RECEIVE_SECONDS)
            received = await receiver.receive(1 if is_full else AT_ONCE, _RECEIVE_SECONDS)
            if await self._take(receiver, received):
                moved = time.monotonic()
                continue
            waited = time.monotonic() - moved
            if not received and waited > _LOOK_AFTER_SECONDS:
                await self._look()
            if waited > self._options.patience:
                self._leave(self._keys_of(session_id), "another receiver has locked it, or one behind it waits for it")

    def _remaining(self, session_id: str | None) -> int:
        return len(self._todo) if session_id is None else self._counts[session_id]

    def _end(self, key: str) -> None:
        self._counts[self._todo.pop(key)] -= 1

    def _keys_of(self, session_id: str | None) -> list[str]:
        if session_id is None:
            return list(self._todo)
        return [key for key, each in self._todo.items() if each == session_id]

    async def _take(self, receiver: Source, received: Iterable[Held]) -> bool:
        """Sort what was received; return whether anything of it is new."""
        sent_before: list[Held] = []
        is_new = False
        for each in received:
            if each.key is not None and each.key in self._todo:
                is_new = True
                if self._ledger.state(each.key) in (SENT, COMPLETED):
                    sent_before.append(each)
                else:
                    self._hold(each.key, each)
                continue
            is_new = is_new or each.key not in self._skipped
            each.forget()
            self._skipped[each.key] = each
        self.result.completed_only += await self._complete(receiver, sent_before)
        return is_new

    def _hold(self, key: str, held: Held) -> None:
        self._drop(key)
        self._held[key] = held
        self._held_bytes += len(held.delivery.payload)

    def _drop(self, key: str) -> Held | None:
        held = self._held.pop(key, None)
        if held is not None:
            self._held_bytes -= len(held.delivery.payload)
        return held

    async def _renew(self, receiver: Source) -> None:
        now = time.monotonic()
        if now < self._renewed + _RENEWAL_SECONDS:
            return
        self._renewed = now
        for key in [each.key for each in await receiver.renew([*self._held.values()]) if each.key is not None]:
            self._drop(key)  # it comes again
        for lost in await receiver.renew([*self._skipped.values()]):
            self._skipped.pop(lost.key, None)

    def _batch(self, receiver: Source) -> list[Ready]:
        """Return the next messages to send, all to one destination; in a session none before an earlier one."""
        batch: list[Ready] = []
        taken: Counter[str] = Counter()
        # If the run is killed during its first send, only one message lacks the evidence of earlier ones.
        rate = self._options.rate
        count = 1 if not self._has_sent else AT_ONCE if rate is None else max(1, min(AT_ONCE, round(rate)))
        for key, held in list(self._held.items()):
            session_id = self._todo[key]
            if session_id is not None:
                waiting = self._sessions[session_id]
                if len(waiting) <= taken[session_id] or waiting[taken[session_id]] != key:
                    continue
            if held.letter is None or not receiver.may_send(held) or self._ledger.state(key) in OPEN:
                continue
            ready = self._delivery.prepare(held.letter)
            if isinstance(ready, str):
                self._leave([key], ready)
                continue
            if batch and ready.destination != batch[0].destination:
                break
            batch.append(ready)
            if session_id is not None:
                taken[session_id] += 1
            if len(batch) == count:
                break
        return batch

    async def _send(self, receiver: Source, batch: Sequence[Ready]) -> None:
        self._pace.begin(time.monotonic())
        delivered = await self._delivery.send(batch)
        self._has_sent = self._has_sent or bool(delivered.sent)
        self._failures = 0 if delivered.error is None else self._failures + 1
        for key in delivered.sent:
            self._forget_order(key)
        for key, reason in delivered.rejected.items():
            self._leave([key], reason)
        held = [each for each in map(self._held.get, delivered.sent) if each is not None]
        self.result.sent += len(delivered.sent)
        await self._complete(receiver, held)
        if delivered.error is not None:
            await self._recover(receiver, delivered.error, delivered.unclear)
        await self._sleep(self._pace.seconds_after(len(delivered.sent), self._options.rate, time.monotonic()))

    async def _recover(self, receiver: Source, error: BuswayError, unclear: Sequence[str]) -> None:
        """Wait after a failed send, and find out what became clear meanwhile; give up after some attempts."""
        if self._failures > len(_WAITS):
            self.result.error = error
        else:
            wait = _WAITS[self._failures - 1]
            if isinstance(error, TargetUnavailable) and error.retry_after is not None:
                wait = min(max(wait, error.retry_after.total_seconds()), _LONGEST_WAIT)
            await self._sleep(wait, receiver)
        await self._resolve(unclear)
        sent = [key for key in unclear if key in self._held and self._ledger.state(key) == SENT]
        self.result.sent += len(sent)
        await self._complete(receiver, [self._held[key] for key in sent])

    async def _complete(self, receiver: Source, messages: Sequence[Held]) -> int:
        """Complete messages that were sent; return how many left the entity. The others come again."""
        lost = {each.key for each in await receiver.complete(messages)}
        done = [each.key for each in messages if each.key is not None and each.key not in lost]
        for each in messages:
            if each.key is not None:
                self._drop(each.key)  # what is settled cannot be given back if the ledger fails
        for to in {self._ledger.entries[key].to for key in done}:
            await self._ledger.note(COMPLETED, [key for key in done if self._ledger.entries[key].to == to], to)
        for key in done:
            self._end(key)
        self._progress(len(done))
        return len(done)

    def _forget_order(self, key: str) -> None:
        """Let the message behind *key* in its session go."""
        session_id = self._todo[key]
        if session_id is not None and key in self._sessions.get(session_id, ()):
            self._sessions[session_id].remove(key)

    def _leave(self, keys: Iterable[str], reason: str) -> None:
        """Leave messages where they are; those behind them in their sessions do not wait for them."""
        for key in list(keys):
            self._forget_order(key)
            self._end(key)
            self.result.left[key] = reason
            held = self._drop(key)
            if held is not None:
                held.forget()
                self._skipped[key] = held

    async def _look(self) -> None:
        """Find out which messages are no longer there: another receiver has completed them."""
        there = {letter.key async for some in peeked(self._place, self._settings) for letter, _ in some}
        for key in [key for key in self._todo if key not in there and key not in self._held]:
            self._forget_order(key)
            self._end(key)
            self.result.gone += 1

    async def _resolve(self, keys: Sequence[str]) -> None:
        """Find out what happened to messages whose send was interrupted, or leave that to the next run."""
        questions = [
            Question(key, entry, self._todo[key], self._ledger.sent_before(entry))
            for key in keys
            if (entry := self._ledger.entries[key]).state in OPEN
        ]
        for to, some in by_destination(questions).items():
            found = await self._answers(to, some)
            if self._stopping.is_set():
                return  # it may have looked too early
            for answer, state in ((Answer.SENT, SENT), (Answer.NOT_SENT, REFUSED)):
                await self._note_found(state, [key for key, each in found.items() if each is answer], to)
            unclear = [key for key, each in found.items() if each is Answer.UNCLEAR]
            if self._options.unclear is Unclear.SEND:
                await self._note_found(REFUSED, unclear, to)
            elif self._options.unclear is Unclear.COMPLETE:
                await self._note_found(SENT, unclear, to)
            else:
                self._leave_unclear(unclear, to)

    async def _note_found(self, state: str, keys: Sequence[str], to: str) -> None:
        await self._ledger.note(state, keys, to)
        if state == SENT:
            for key in keys:
                self._forget_order(key)

    async def _answers(self, to: str, questions: Sequence[Question]) -> Mapping[str, Answer]:
        try:
            return await self._delivery.answers(to, questions, self._stopping)
        except BuswayError:
            # Without a look at the target nothing is known about them.
            return dict.fromkeys((each.key for each in questions), Answer.UNCLEAR)

    def _leave_unclear(self, keys: Sequence[str], to: str) -> None:
        unclear = set(keys)
        for key in keys:
            if key not in self._todo:
                continue
            session_id = self._todo[key]
            behind = [] if session_id is None else list(self._sessions.get(session_id, ()))
            later = behind[behind.index(key) + 1 :] if key in behind else []
            self._leave([key], f"unclear: an interrupted run may have sent it to {to}, where it is not found")
            not_unclear = [each for each in later if each not in unclear]
            self._leave(not_unclear, "held back: it is behind an unclear message of its session")

    async def _sleep(self, seconds: float, receiver: Source | None = None) -> None:
        """Wait, with locks renewed, unless the run is to stop."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), min(left, _TICK_SECONDS))
            if receiver is not None:
                await self._renew(receiver)
