"""One run with a source, a target and a ledger in memory; `tests/simulation` has what depends on moments."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from shared.ends.azure_amqp.raw_link import Delivery
from shared.errors import BuswayError, TargetRefused, TargetUnavailable
from shared.protocols import Outgoing
from shared.resend.agenda import Hold
from shared.resend.delivery import Attempt, PreparedMessage
from shared.resend.evidence import Answer, Question
from shared.resend.ledger import COMPLETED, REFUSED, SENDING, SENT, Ledger, MemoryStore
from shared.resend.letters import Letter
from shared.resend.options import Options, Unclear
from shared.resend.places import Destination
from shared.resend.removal import Removal
from shared.resend.run import NOT_REACHED, Result, Run
from shared.resend.source import CopySource, LockedMessage, Source, Supply
from tests.messages import ORIGIN, delivered

EAST = Destination("east", "east", "orders")
LETTER = Letter(delivered(1), ORIGIN)


class Entity(Source):
    """Gives its messages, a few at a time; one whose completion fails comes again."""

    removes = True

    def __init__(self, keys: Sequence[str], *, loses: Sequence[str] = ()) -> None:
        self.keys = list(keys)
        self._loses = list(loses)
        self._waiting = list(keys)

    async def receive(self, count: int, seconds: float) -> list[LockedMessage]:  # noqa: ARG002 - the protocol's
        some, self._waiting = self._waiting[:3], self._waiting[3:]
        if not some:
            await asyncio.sleep(0)
        return [LockedMessage.without_lock(key, LETTER) for key in some]

    async def complete(self, messages: Sequence[LockedMessage]) -> list[LockedMessage]:
        lost = [message for message in messages if message.key in self._loses]
        for message in messages:
            assert message.key is not None
            if message in lost:
                self._loses.remove(message.key)
                self._waiting.append(message.key)
            else:
                self.keys.remove(message.key)
        return lost

    async def give_back(self, messages: Iterable[LockedMessage]) -> None:
        self._waiting += [str(message.key) for message in messages]


class Target:
    """Accepts messages in the order in which they come; its first answers may be errors."""

    keeps_order = begins_with_one = True

    def __init__(self, *failures: BuswayError, answers: Mapping[str, Answer] | None = None) -> None:
        self.ledger = Ledger(MemoryStore(), "orders")
        self.accepted: list[str] = []
        self._failures = list(failures)
        self._answers = answers or {}

    async def prepare(self, key: str, letter: Letter) -> PreparedMessage | str:
        return "broken" if key == "broken" else PreparedMessage(key, EAST, Outgoing(letter.content, None, None, None))

    async def send(self, messages: Sequence[PreparedMessage]) -> Attempt:
        keys = [message.key for message in messages]
        await self.ledger.note(SENDING, keys, str(EAST))
        if self._failures:
            error = self._failures.pop(0)
            if isinstance(error, TargetUnavailable):
                return Attempt(unclear=keys, error=error)
            await self.ledger.note(REFUSED, keys, str(EAST))
            return Attempt(error=error)
        self.accepted += keys
        await self.ledger.note(SENT, keys, str(EAST))
        return Attempt(keys)

    async def answers(self, to: str, questions: Sequence[Question], stopping: asyncio.Event) -> Mapping[str, Answer]:
        assert (to, stopping.is_set()) == (str(EAST), False)
        return {question.key: self._answers.get(question.key, Answer.UNCLEAR) for question in questions}

    async def end(self) -> None:
        pass


def run(source: Any, target: Any, wanted: Mapping[str, str | None] | None, options: Options | None = None) -> Result:
    @asynccontextmanager
    async def opened(_: str | None) -> AsyncGenerator[Any]:
        yield source

    return asyncio.run(Run(Supply(opened), target, wanted, options or Options()).run())


def note(target: Target, state: str, *keys: str) -> None:
    """Record what an earlier run has done."""
    asyncio.run(target.ledger.note(state, keys, str(EAST)))
    target.ledger.run += 1


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.resend.run._WAITS", (0.0, 0.0))


def test_only_the_selected_messages_are_sent_and_removed() -> None:
    source, target = Entity(["a", "b", "c", "d", "e"]), Target()
    result = run(source, target, {"b": None, "d": None})
    assert (result.is_complete, result.sent, target.accepted, source.keys) == (True, 2, ["b", "d"], ["a", "c", "e"])
    assert [target.ledger.state(key) for key in "abd"] == [None, COMPLETED, COMPLETED]


def test_a_failure_is_retried_and_too_many_end_the_run() -> None:
    source, target = Entity(["a"]), Target(TargetRefused("full"), TargetRefused("full"))
    assert (run(source, target, {"a": None}).sent, source.keys) == (1, [])
    source, target = Entity(["a", "b"]), Target(*[TargetRefused("full")] * 3)
    result = run(source, target, {"a": None, "b": None})
    assert (str(result.error), result.left) == ("full", {"a": NOT_REACHED, "b": NOT_REACHED})
    source, target = Entity(["a", "b"]), Target(TargetRefused("full"))
    assert str(run(source, target, {"a": None, "b": None}, Options(retries=0)).error) == "full"


@pytest.mark.parametrize(
    ("unclear", "accepted", "left"),
    [
        (Unclear.LEAVE, ["t1"], {"s1", "s2"}),
        (Unclear.SEND, ["s1", "s2", "t1"], set()),
        (Unclear.COMPLETE, ["s2", "t1"], set()),
    ],
)
def test_an_unclear_message_and_those_behind_it_wait_for_a_choice(
    unclear: Unclear, accepted: list[str], left: set[str]
) -> None:
    source, target = Entity(["s1", "s2", "t1"]), Target()
    note(target, SENDING, "s1")
    result = run(source, target, {"s1": "s", "s2": "s", "t1": "t"}, Options(unclear=unclear))
    assert (sorted(target.accepted), {*result.left}, {*source.keys}) == (accepted, left, left)


def test_copies_stay_where_they_are_and_are_read_once() -> None:
    async def pages() -> AsyncGenerator[list[tuple[str, Letter]]]:
        for page in (["a", "b"], [], ["c"]):
            yield [(key, LETTER) for key in page]

    target = Target(answers={"b": Answer.SENT})
    note(target, SENT, "a")
    note(target, SENDING, "b")
    result = run(CopySource(pages()), target, None)
    assert (result.is_complete, result.sent_before, target.accepted) == (True, 2, ["c"])
    assert [target.ledger.state(key) for key in "abc"] == [SENT] * 3


def test_a_removal_sends_nothing_and_needs_no_order() -> None:
    source = Entity(["s2", "a"], loses=["a"])
    result = run(source, Removal(), {"s1": "s", "s2": "s", "a": None}, Options(patience=0.02))
    assert (result.completed, source.keys) == (2, [])
    assert result.left == {"s1": "another receiver has locked it"}


def test_locks_are_renewed_while_a_target_is_looked_at() -> None:
    class Renewed(Entity):
        renewals = asyncio.Event()

        async def renew(self, messages: Sequence[LockedMessage]) -> list[LockedMessage]:
            if [message.key for message in messages] == ["a"]:
                self.renewals.set()
            return []

    class Slow(Target):
        async def answers(self, *asked: Any) -> Mapping[str, Answer]:
            Renewed.renewals.clear()
            await asyncio.wait_for(Renewed.renewals.wait(), 10)
            return await super().answers(*asked)

    source = Renewed(["a"])
    result = run(source, Slow(TargetUnavailable("silent"), answers={"a": Answer.SENT}), {"a": None})
    assert (result.is_complete, source.keys) == (True, [])


def test_every_message_that_cannot_be_read_is_held_until_the_end() -> None:
    """One that is not would come again when its lock ends, and be dead-lettered after some deliveries."""
    given_back: list[LockedMessage] = []

    class Locked(Entity):
        async def give_back(self, messages: Iterable[LockedMessage]) -> None:
            given_back.extend(messages)

    unreadable = [LockedMessage(None, Delivery(number, b"", b"?"), None, 0.0, 1.0) for number in (1, 2)]
    hold = Hold()
    assert [hold.keep_back(message) for message in [*unreadable, unreadable[0]]] == [True, True, False]
    asyncio.run(hold.give_back(Locked([])))
    assert given_back == unreadable


def test_what_this_run_has_sent_counts_as_that_also_if_it_is_known_later() -> None:
    class Interrupted(Target):
        async def send(self, messages: Sequence[PreparedMessage]) -> Attempt:
            if not self.accepted:
                self.accepted += [message.key for message in messages]
                await self.ledger.note(SENDING, self.accepted, str(EAST))
                raise TargetUnavailable("the ledger does not answer")
            return await super().send(messages)

    source, target = Entity(["a", "b"]), Interrupted(answers={"a": Answer.SENT, "before": Answer.SENT})
    result = run(source, target, {"a": None, "b": None})
    assert (result.sent, result.sent_before, target.accepted, source.keys) == (2, 0, ["a", "b"], [])
    source = Entity(["before"])
    note(target, SENDING, "before")
    result = run(source, target, {"before": None})
    assert (result.sent, result.sent_before, source.keys) == (0, 1, [])
