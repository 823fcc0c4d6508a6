"""
One run over the messages of a source: each is sent, recorded, and only then settled at the source.

Messages of one session are sent in the order of their sequence numbers. A message that a killed run has locked comes
back when its lock ends; until then those behind it in its session are held.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from shared.errors import BuswayError, TargetRefused, TargetUnavailable
from shared.line.pace import Pace
from shared.resend.agenda import Agenda, Hold
from shared.resend.delivery import Delivery, PreparedMessage
from shared.resend.evidence import Answer, Question, by_destination
from shared.resend.ledger import COMPLETED, DONE, OPEN, REFUSED, SENT
from shared.resend.options import Options, Unclear
from shared.resend.source import LockedMessage, SessionUnavailable, Source, Supply

AT_ONCE = 100
NOT_REACHED = "not reached: the run ended before it"

_RECEIVE_SECONDS = 1.0
_LOOK_AFTER_SECONDS = 5.0
_WAITS = (0.5, 1.0, 2.0, 4.0, 8.0)
_LONGEST_WAIT = 15.0
_LOOKS = 4
"""How often a run looks at a target that does not answer before it takes what it has sent there for unclear."""
_TICK_SECONDS = 0.2
_LOCKED = "another receiver has locked it"


class Result:
    """What happened to the selected messages."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.sent = 0
        self.sent_before = 0
        """Sent by an earlier run, and completed now if that run was interrupted before it could do that."""
        self.completed = 0
        """Removed from the source, in this run."""
        self.gone = 0
        self.left: dict[str, str] = {}
        """The reason for each message that stays, by key."""
        self.error: BuswayError | None = None
        self.is_stopped = False

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to do."""
        return not self.left and self.error is None and not self.is_stopped


class Run:
    """Sends messages of one source."""

    def __init__(
        self,
        supply: Supply,
        delivery: Delivery,
        wanted: Mapping[str, str | None] | None,
        options: Options,
    ) -> None:
        """Send the messages *wanted*: the session of each by its key, in the order of the source; None: all it has."""
        self.result = Result()
        self.progress: Callable[[int], None] = lambda _: None
        """Gets the number of messages each time some are done."""
        self._supply = supply
        self._delivery = delivery
        self._ledger = ledger = delivery.ledger
        self._agenda = Agenda(wanted, is_sent=lambda key: ledger.state(key) in DONE, keeps_order=delivery.keeps_order)
        self._hold = Hold()
        self._options = options
        self._waits = _WAITS[: options.retries]
        self._pace = Pace(options.rate)
        self._stopping = asyncio.Event()
        self._source: Source | None = None
        self._failures = 0
        self._has_sent = not delivery.begins_with_one
        self._sent: set[str] = set()
        self._again: set[str] = set()
        """What is sent again although it may have arrived: the ledger has it as open until it is sent."""

    def stop(self) -> None:
        """End the run after the step that is under way."""
        self.result.is_stopped = True
        self._stopping.set()

    async def run(self) -> Result:
        """Send and settle the messages; errors are in the result."""
        while self._agenda and not self._is_over():
            try:
                await self._resolve([key for key in self._agenda if self._is_open(key)])
                await self._receive_and_send()
            except TargetRefused as error:
                self.result.error = error
            except TargetUnavailable as error:
                self._failures += 1
                if self._failures > len(self._waits):
                    self.result.error = error
                else:
                    await self._sleep(self._waits[self._failures - 1])
        for key in self._agenda:
            self.result.left.setdefault(key, NOT_REACHED)
        with contextlib.suppress(BuswayError):  # a later run does it
            await self._delivery.end()
        return self.result

    def _is_over(self) -> bool:
        return self._stopping.is_set() or self.result.error is not None

    async def _receive_and_send(self) -> None:
        """Work through the source, or through one session after the other if it requires sessions."""
        if not self._supply.by_session:
            try:
                return await self._work(None)
            except TargetRefused as error:
                if self._supply.by_session is not None or "amqp:not-allowed" not in str(error):
                    raise
        for session_id in self._agenda.session_ids():
            if self._is_over():
                return None
            if session_id is None:
                without = [key for key in self._agenda if self._agenda.session_of(key) is None]
                self._leave(without, "has no session id")
                continue
            try:
                await self._work(session_id)
            except SessionUnavailable as error:
                self._leave(self._agenda.keys_of(session_id), str(error))
        return None

    async def _work(self, session_id: str | None) -> None:
        """Receive from the source, or from one session, until nothing of it is left to do."""
        async with self._supply.open(session_id) as source:
            self._source = source
            try:
                await self._work_with(source, session_id)
            finally:
                self._source = None
                await self._hold.give_back(source)

    async def _work_with(self, source: Source, session_id: str | None) -> None:
        loop = asyncio.get_running_loop()
        moved = loop.time()
        while self._agenda.has_more(session_id) and not self._is_over():
            await self._hold.renew(source)
            batch = await self._batch(source)
            if batch:
                turn = self._pace.turn(len(batch), loop.time())
                if turn:
                    await self._sleep(turn)
                else:
                    await self._send(source, batch)
                moved = loop.time()
                continue
            if self._hold.is_full:
                await self._sleep(_RECEIVE_SECONDS)
            received = await source.receive(1 if self._hold.is_full else AT_ONCE, _RECEIVE_SECONDS)
            if received is None:
                self._agenda.close()
                await self._forget([key for key in self._agenda if key not in self._hold], removes=source.removes)
                if not self._agenda.has_more(session_id):
                    return
                await self._sleep(_RECEIVE_SECONDS)  # what is left may be in doubt until its target answers
                received = []
            if await self._take(source, received):
                moved = loop.time()
                continue
            waited = loop.time() - moved
            if not received and waited > _LOOK_AFTER_SECONDS and self._supply.look is not None:
                there = await self._supply.look()
                missing = [key for key in self._agenda if key not in there and key not in self._hold]
                await self._forget(missing, removes=source.removes)
            if waited > self._options.patience:
                behind = ", or one behind it waits for it" if self._delivery.keeps_order else ""
                self._leave(self._agenda.keys_of(session_id), _LOCKED + behind)

    async def _take(self, source: Source, received: Iterable[LockedMessage]) -> bool:
        """Sort what was received; return whether anything of it is new."""
        is_new = False
        wanted: dict[str, LockedMessage] = {}
        for message in received:
            if message.key is not None and self._agenda.takes(message.key):
                is_new = True
                wanted[message.key] = message
                self._hold.add(message.key, message)
            else:
                is_new = self._hold.keep_back(message) or is_new
        await self._resolve([key for key in wanted if self._is_open(key)])
        done = {key: message for key, message in wanted.items() if self._ledger.state(key) in DONE}
        # One that this run has sent, and that lost its lock before it was completed, is counted already.
        await self._complete(source, [message for key, message in done.items() if key in self._sent])
        before = [message for key, message in done.items() if key not in self._sent]
        self.result.sent_before += await self._complete(source, before)
        return is_new

    async def _batch(self, source: Source) -> list[PreparedMessage]:
        """Return the next messages to send, all to one destination; in a session none before an earlier one."""
        batch: list[PreparedMessage] = []
        taken: Counter[str | None] = Counter()
        # What is wrong with the target shows at the first send: then only one message is in doubt.
        rate = self._options.rate
        count = 1 if not self._has_sent else AT_ONCE if rate is None else max(1, min(AT_ONCE, round(rate)))
        for key, message in self._hold:
            if not self._agenda.is_next(key, taken):
                continue
            if message.letter is None or not source.may_send(message) or self._is_open(key):
                continue
            prepared = await self._delivery.prepare(key, message.letter)
            if isinstance(prepared, str):
                self._leave([key], prepared)
                continue
            if batch and prepared.destination != batch[0].destination:
                break
            batch.append(prepared)
            taken[self._agenda.session_of(key)] += 1
            if len(batch) == count:
                break
        return batch

    async def _send(self, source: Source, batch: Sequence[PreparedMessage]) -> None:
        self._again.difference_update(message.key for message in batch)
        attempt = await self._delivery.send(batch)
        self._has_sent = self._has_sent or bool(attempt.sent)
        self._failures = 0 if attempt.error is None else self._failures + 1
        self._sent.update(attempt.sent)
        for key in attempt.sent:
            self._agenda.pass_by(key)
        for key, reason in attempt.rejected.items():
            self._leave([key], reason)
        self.result.sent += len(attempt.sent)
        await self._complete(source, self._hold.of(attempt.sent))
        if attempt.error is not None:
            await self._recover(source, attempt.error, attempt.unclear)

    async def _recover(self, source: Source, error: BuswayError, unclear: Sequence[str]) -> None:
        """Wait after a failed send, and find out what became clear meanwhile; give up after some attempts."""
        if self._failures > len(self._waits):
            self.result.error = error
        else:
            wait = self._waits[self._failures - 1]
            if isinstance(error, TargetUnavailable) and error.retry_after is not None:
                wait = min(max(wait, error.retry_after.total_seconds()), _LONGEST_WAIT)
            await self._sleep(wait)
        await self._resolve(unclear)
        await self._complete(source, self._hold.of([key for key in unclear if self._ledger.state(key) == SENT]))

    async def _complete(self, source: Source, messages: Sequence[LockedMessage]) -> int:
        """Complete messages that were sent; return how many left the source. The others come again."""
        lost = {message.key for message in await source.complete(messages)}
        done = [message.key for message in messages if message.key is not None and message.key not in lost]
        for message in messages:
            if message.key is not None:
                self._hold.drop(message.key)  # what is settled cannot be given back if the ledger fails
        if source.removes:
            await self._note_completed(done)
        # What the source has made undone goes on as another message.
        undone = {key for key in lost if key is not None and self._ledger.state(key) not in DONE}
        self.result.sent -= len(undone & self._sent)
        self._sent -= undone
        for key in [*done, *undone]:
            self._agenda.end(key)
        self.result.completed += len(done)
        self.progress(len(done))
        return len(done)

    async def _note_completed(self, keys: Sequence[str]) -> None:
        for to in dict.fromkeys(self._ledger.entries[key].to for key in keys):
            await self._ledger.note(COMPLETED, [key for key in keys if self._ledger.entries[key].to == to], to)

    def _leave(self, keys: Iterable[str], reason: str) -> None:
        """Leave messages where they are; those behind them in their sessions do not wait for them."""
        for key in keys:
            self._agenda.pass_by(key)
            self._agenda.end(key)
            self.result.left[key] = reason
            message = self._hold.drop(key)
            if message is not None:
                self._hold.keep_back(message)

    async def _forget(self, keys: Sequence[str], *, removes: bool) -> None:
        """Take off messages that are not there: this run has completed them without an answer, or another receiver."""
        done = [key for key in keys if self._ledger.state(key) in DONE]
        if removes:
            await self._note_completed(done)
        for key in keys:
            self._agenda.pass_by(key)
            self._agenda.end(key)
        self.result.completed += len(done)
        self.result.sent_before += sum(key not in self._sent for key in done)
        self.result.gone += len(keys) - len(done)

    def _is_open(self, key: str) -> bool:
        return self._ledger.state(key) in OPEN and key not in self._again

    async def _resolve(self, keys: Sequence[str]) -> None:
        """Find out what happened to messages whose send was interrupted, or leave that to the next run."""
        questions = [
            Question(key, entry, self._agenda.session_of(key), self._ledger.sent_before(entry))
            for key in keys
            if (entry := self._ledger.entries[key]).state in OPEN
        ]
        for to, some in by_destination(questions).items():
            found = await self._answers(to, some)
            if self._stopping.is_set():
                return  # it may have looked too early
            by_answer = {answer: [key for key, each in found.items() if each is answer] for answer in Answer}
            unclear = by_answer[Answer.UNCLEAR]
            if self._options.unclear is Unclear.SEND:
                self._again.update(unclear)
            elif self._options.unclear is Unclear.COMPLETE:
                by_answer[Answer.SENT] += unclear
            else:
                text = f"unclear: an interrupted run may have sent it to {to}, where it is not found"
                self._leave_with_others(unclear, text, "an unclear message")
            text = f"it is at {to}, and locked there: run the command again when the lock has ended, in five minutes"
            self._leave_with_others(by_answer[Answer.LOCKED], text, "a locked message")
            await self._ledger.note(SENT, by_answer[Answer.SENT], to)
            await self._ledger.note(REFUSED, by_answer[Answer.NOT_SENT], to)
            for key in by_answer[Answer.SENT]:
                self._agenda.pass_by(key)
            own = {each.key for each in some if each.entry.run == self._ledger.run}.intersection(by_answer[Answer.SENT])
            self._sent |= own
            self.result.sent += len(own)

    async def _answers(self, to: str, questions: Sequence[Question]) -> Mapping[str, Answer]:
        for wait in (0.0, *_WAITS[: _LOOKS - 1]):
            await self._sleep(wait)
            try:
                return await self._renewing(self._delivery.answers(to, questions, self._stopping))
            except BuswayError as error:
                failure = error
                if self._stopping.is_set():
                    break
        # Without a look at the target nothing is known about them, and what may be there is not sent again.
        if self._options.unclear is Unclear.SEND and not self._stopping.is_set():
            raise failure
        return dict.fromkeys((question.key for question in questions), Answer.UNCLEAR)

    def _leave_with_others(self, keys: Sequence[str], reason: str, what: str) -> None:
        """Leave messages for a *reason*, and those behind them in their sessions."""
        left = set(keys)
        for key in keys:
            if key in self.result.left:
                continue  # it is behind one that is left for another reason
            later = [each for each in self._agenda.behind(key) if each not in left]
            self._leave([key], reason)
            self._leave(later, f"held back: it is behind {what} of its session")

    async def _sleep(self, seconds: float) -> None:
        """Wait, with locks renewed, unless the run is to stop."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (left := end - loop.time()) > 0 and not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), min(left, _TICK_SECONDS))
            await self._renew()

    async def _renewing[T](self, step: Awaitable[T]) -> T:
        """Return what *step* returns; until then, locks are renewed."""
        task = asyncio.ensure_future(step)
        try:
            while not (await asyncio.wait([task], timeout=_TICK_SECONDS))[0]:
                await self._renew()
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait([task])

    async def _renew(self) -> None:
        if self._source is not None:
            await self._hold.renew(self._source)
