"""Messages that the host delivers one by one, gathered into batches for the line."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from shared.errors import BuswayError, LockLost, TargetUnavailable
from shared.line.intake import LARGEST_BATCH, LARGEST_BATCH_BYTES, Intake
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.shutdown import Shutdown
from shared.line.task import Task
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.message.ttl import Keep
from shared.protocols import Editor, Outcome
from shared.rules.rule import parse_filter
from tests.fakes import (
    JournalInMemory,
    OutputThatAccepts,
    OutputThatIsDown,
    OutputThatRejects,
    SettlementInMemory,
    clock_at_delivery,
)
from tests.messages import delivered
from tests.unit.line.copying import Editing

HOLD = timedelta(minutes=5)


class One:
    """A task with `dispatch: single` from west/orders; what has the session b goes to its own target."""

    def __init__(
        self,
        output: OutputThatAccepts,
        other: OutputThatAccepts | None = None,
        *,
        journal: JournalInMemory | None = None,
        editors: Sequence[Editor] = (),
        has_locks: bool = False,
        has_sessions: bool = False,
        shutdown: Shutdown | None = None,
    ) -> None:
        self.output = output
        self.journal = journal or JournalInMemory()
        self.clock = clock_at_delivery()
        self.locks = SettlementInMemory(self.clock)
        self.held: asyncio.Event | None = None
        routes = [Route(Target(output, "east", "orders"))]
        if other is not None:
            routes.insert(0, Route(Target(other, "north", "orders"), parse_filter("sys.SessionId = 'b'")))
        task = Task(
            *("copy", Origin("west", "orders"), editors, Router(routes), None, Keep(), None),
            one_by_one=True,
            settlement=self.locks if has_locks else None,
            hold=HOLD,
        )
        line = Pipeline(task, self.journal, self.clock, self._sleep, shutdown=shutdown)
        self.intake = Intake(line, has_sessions=has_sessions, sleep=_soon)

    async def _sleep(self, seconds: float) -> None:
        """Let virtual time pass, unless the test holds it."""
        await asyncio.sleep(0)
        if self.held is not None:
            await self.held.wait()
        self.clock.advance(seconds)

    def run(self, *messages: bytes) -> list[BaseException | None]:
        """Deliver *messages* at the same time; return what each invocation has raised."""

        async def all_together() -> list[BaseException | None]:
            each = (self.intake.run(message, b"token of %d" % n) for n, message in enumerate(messages, 1))
            return await asyncio.gather(*each, return_exceptions=True)

        return asyncio.run(all_together())


async def _until_called(output: OutputThatAccepts) -> None:
    for _ in range(1000):
        if output.calls:
            return
        await asyncio.sleep(0)
    raise AssertionError("nothing was sent")


async def _soon(_: float) -> None:
    await asyncio.sleep(0)


def test_messages_that_come_together_leave_in_one_call() -> None:
    one = One(OutputThatAccepts())
    assert one.run(*(delivered(number) for number in range(1, 6))) == [None] * 5
    assert one.output.calls == [5]
    assert [record.outcome for record in one.journal.records] == [Outcome.SENT] * 5


def test_a_batch_ends_when_it_is_full() -> None:
    one = One(OutputThatAccepts())
    one.run(*(delivered(number) for number in range(1, 2 * LARGEST_BATCH + 11)))
    assert one.output.calls == [LARGEST_BATCH, LARGEST_BATCH, 10]
    large = One(OutputThatAccepts())
    large.run(*(delivered(number, body=bytes(LARGEST_BATCH_BYTES // 2)) for number in range(1, 6)))
    assert large.output.calls == [2, 2, 1]


def test_a_failure_in_busway_itself_leaves_no_invocation_waiting() -> None:
    def fail(_: Message) -> list[Message]:
        raise ZeroDivisionError

    one = One(OutputThatAccepts(), editors=[Editing(fail)])
    results = one.run(delivered(1), delivered(2))
    assert all(isinstance(result, BuswayError) for result in results)


def test_a_shutdown_ends_every_invocation() -> None:
    shutdown = Shutdown()
    down = OutputThatIsDown()
    one = One(OutputThatAccepts(), down, shutdown=shutdown)

    async def scenario() -> list[BaseException | None]:
        one.held = asyncio.Event()
        messages = [delivered(1), delivered(2, session_id="b"), delivered(3, session_id="b")]
        each = [asyncio.create_task(one.intake.run(message)) for message in messages]
        await _until_called(down)
        shutdown.request()
        one.held.set()
        return await asyncio.gather(*each, return_exceptions=True)

    results = asyncio.run(scenario())
    assert [type(each) for each in results] == [type(None), TargetUnavailable, TargetUnavailable]
    assert one.clock.monotonic() < HOLD.total_seconds()


def test_a_rejected_message_is_dead_lettered_with_its_own_lock_and_session() -> None:
    one = One(OutputThatRejects(lambda message: message.message_id != "m-4"), has_locks=True, has_sessions=True)
    one.locks.lose(b"token of 2")
    results = one.run(*(delivered(number, session_id=f"s-{number}") for number in range(1, 5)))
    assert [type(result) for result in results] == [type(None), LockLost, type(None), type(None)]
    assert [token for token, *_ in one.locks.dead] == [b"token of 1", b"token of 3"]
    assert one.locks.asked == [], "the host renews the locks"
    assert one.output.ids("orders") == ["m-4"]


def test_a_message_that_cannot_be_read_does_not_stop_others() -> None:
    one = One(OutputThatAccepts(), has_sessions=True, has_locks=True)
    results = one.run(b"\x00\x53\x75", delivered(2, session_id="a"))
    assert results[1] is None
    assert one.output.ids("orders") == ["m-2"]


def test_a_copy_of_an_event_waits_for_the_first() -> None:
    down = OutputThatIsDown()
    one = One(down)

    async def scenario() -> Sequence[BaseException | None]:
        one.held = asyncio.Event()
        first = asyncio.create_task(one.intake.run(delivered(1), key="event"))
        await _until_called(down)
        copy = asyncio.create_task(one.intake.run(delivered(2), key="event"))
        await asyncio.sleep(0)
        down.put_up()
        one.held.set()
        return await asyncio.gather(first, copy, return_exceptions=True)

    assert asyncio.run(scenario()) == [None, None]
    assert down.calls[-2:] == [1, 1]
