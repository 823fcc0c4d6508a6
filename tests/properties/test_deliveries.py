"""
Deliveries of one source under faults drawn at random: nothing is settled before it is sent and on record, nothing is
lost, first copies keep the order of a session, and no message uses up the deliveries of an outage.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.message.arrival import Origin
from shared.message.ttl import Keep
from shared.protocols import Outcome, Outgoing
from shared.rules import parse_filter
from tests.fakes import JournalInMemory, OutputThatAccepts, SessionInMemory, SettlementInMemory, clock_at_delivery
from tests.messages import LOCK_MILLISECONDS, delivered

LOCK = LOCK_MILLISECONDS / 1000
HOLD = timedelta(minutes=5)
CALM = 1200.0
"""The number of seconds after which nothing fails any more."""
POISON = frozenset({4})
KINDS = ("first down", "second down", "first up", "second up", "lose one", "lose all", "refuse one", "service", "back")

EVENTS = st.lists(st.tuples(st.floats(0, CALM), st.sampled_from(KINDS), st.integers(1, 8)), max_size=12)


def token(number: int) -> bytes:
    return bytes([number]) * 16


class Switched(OutputThatAccepts):
    """Accepts in order while it is up, apart from poison."""

    is_up = True

    def answer(self, message: Outgoing, /) -> BuswayError | None:
        if not self.is_up:
            return TargetUnavailable("away")
        number = int(str(message.message_id).removeprefix("m-"))
        return MessageRejected("Poison", "no") if number in POISON else None


class Settling(SettlementInMemory):
    """Fails if a message is completed that no target has, or without a record."""

    is_sent: Callable[[bytes], bool]

    async def complete(self, token: bytes, *, timeout_seconds: float) -> None:
        assert self.is_sent(token), "completed before it was sent and on record"
        await super().complete(token, timeout_seconds=timeout_seconds)


class Source:
    """A source with eight messages, and a host that settles what the line has left."""

    def __init__(self, events: Sequence[tuple[float, str, int]], *, has_session: bool) -> None:
        self.clock = clock_at_delivery()
        self.settlement = Settling(self.clock)
        self.settlement.is_sent = self.is_sent
        self.session = SessionInMemory(self.settlement) if has_session else None
        self.journal = JournalInMemory()
        self.outputs = Switched(), Switched()
        self.deliveries = dict.fromkeys(range(1, 9), 0)
        self.settled: set[int] = set()
        self._events = sorted(events)
        odd = Target(self.outputs[1], "east", "second")
        routes = [Route(odd, parse_filter("sys.MessageId IN ('m-1', 'm-3', 'm-6')"))]
        routes.append(Route(Target(self.outputs[0], "east", "first")))
        task = Task(
            *("copy", Origin("west", "orders"), [], Router(routes), None, Keep(), None),
            settlement=self.settlement,
            hold=HOLD,
        )
        self.pipeline = Pipeline(task, self.journal, self.clock, self._sleep)

    def at_targets(self) -> list[list[str]]:
        pairs = zip(self.outputs, ("first", "second"), strict=True)
        return [[str(each) for each in output.ids(entity)] for output, entity in pairs]

    def is_sent(self, token: bytes) -> bool:
        name = f"m-{token[0]}"
        recorded = {each.message_id for each in self.journal.records if each.outcome is Outcome.SENT}
        return name in {each for ids in self.at_targets() for each in ids} and name in recorded

    async def deliver(self) -> None:
        """Deliver what is left, with new locks, and settle as the host does."""
        numbers = [number for number in self.deliveries if number not in self.settled]
        self.settlement.begin()
        held = self.settlement.completed, self.settlement.dead
        before = [len(each) for each in held]
        until = round((self.clock.now().timestamp() + LOCK) * 1000)
        if self.session is not None:
            self.session.locked_until, until = until, 253_402_300_800_000
        batch = [delivered(number, locked_until=until, session_id="s") for number in numbers]
        try:
            await self.pipeline.run(batch, None, [token(number) for number in numbers], self.session)
        except BuswayError:
            is_over = False
        else:
            is_over = True
        by_line = [*held[0][before[0] :], *(each for each, *_ in held[1][before[1] :])]
        assert len(by_line) == len(set(by_line)), "settled twice in one delivery"
        self.settled.update(each[0] for each in by_line)
        for number in numbers:
            if number in self.settled:
                continue
            if is_over and not self.settlement.is_lost(token(number)):
                assert self.is_sent(token(number)), "the host completes what was not sent"
                self.settled.add(number)
            else:
                self.deliveries[number] += 1
        self.clock.advance(1)

    async def _sleep(self, seconds: float) -> None:
        end = self.clock.monotonic() + seconds
        while self._events and self._events[0][0] <= end:
            when, kind, number = self._events.pop(0)
            self.clock.advance(max(when - self.clock.monotonic(), 0))
            self._happen(kind, number)
        self.clock.advance(max(end - self.clock.monotonic(), 0))
        if self.clock.monotonic() >= CALM:
            self.outputs[0].is_up = self.outputs[1].is_up = True
            self.settlement.error, self.settlement.spurious = None, 0
        await asyncio.sleep(0)

    def _happen(self, kind: str, number: int) -> None:
        match kind.split():
            case [which, "down" | "up" as how]:
                self.outputs[which == "second"].is_up = how == "up"
            case ["lose", "one"]:
                self.settlement.lose(b"session" if self.session is not None else token(number))
            case ["lose", _]:
                self.settlement.lose()
            case ["refuse", _]:
                self.settlement.spurious = 1
            case ["service"]:
                self.settlement.error = TargetRefused("gone") if number % 2 else TargetUnavailable("away")
            case _:
                self.settlement.error = None


@given(events=EVENTS, has_session=st.booleans(), starts_down=st.booleans())
def test_nothing_is_lost_settled_early_or_out_of_order(
    events: list[tuple[float, str, int]], has_session: bool, starts_down: bool
) -> None:
    source = Source(events, has_session=has_session)
    source.outputs[0].is_up = not starts_down

    async def run() -> None:
        for _ in range(80):
            if len(source.settled) == len(source.deliveries):
                return
            await source.deliver()
        raise AssertionError(f"not settled after 80 deliveries: {source.deliveries}")

    asyncio.run(run())
    assert {number for number, *_ in ((each[0],) for each, *_ in source.settlement.dead)} == set(POISON)
    for ids, numbers in zip(source.at_targets(), ([2, 5, 7, 8], [1, 3, 6]), strict=True):
        first_copies = list(dict.fromkeys(ids))
        assert sorted(first_copies) == sorted(f"m-{number}" for number in numbers)
        if has_session:
            assert first_copies == [f"m-{number}" for number in numbers]
    # A delivery that cannot be renewed lasts for half a lock at least; other faults end one each.
    assert max(source.deliveries.values()) <= CALM / (LOCK / 2) + len(events)
