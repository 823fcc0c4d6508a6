"""What the batches of a task share: `limits.rate`, and a target that says how long it is busy."""

import asyncio
import itertools
from datetime import timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from shared.clock import ManualClock
from shared.errors import TargetUnavailable
from shared.line.deadline import DEFAULT_HOLD
from shared.line.pace import Pace
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.message.arrival import Origin
from shared.message.ttl import Keep
from shared.protocols import Outcome, Outgoing
from tests.fakes import JournalInMemory, OutputThatAccepts, clock_at_delivery
from tests.messages import delivered


class ClockedOutput(OutputThatAccepts):
    """Notes when it was called, and is busy until a time, as it says."""

    def __init__(self, clock: ManualClock, busy_seconds: float = 0) -> None:
        super().__init__()
        self.clock = clock
        self.until = clock.monotonic() + busy_seconds
        self.times: list[float] = []
        self.asked = asyncio.Event()

    def answer(self, _: Outgoing, /) -> TargetUnavailable | None:
        self.times.append(self.clock.monotonic())
        self.asked.set()
        left = self.until - self.clock.monotonic()
        return TargetUnavailable("east/q: busy", retry_after=timedelta(seconds=left)) if left > 0 else None


def line(output: ClockedOutput, rate: float | None = None, hold: timedelta = DEFAULT_HOLD) -> Pipeline:
    """Return a pipeline whose sleep lets other batches run before the time moves."""

    async def sleep(seconds: float) -> None:
        end = output.clock.monotonic() + seconds
        while (left := end - output.clock.monotonic()) > 0:
            await asyncio.sleep(0)
            output.clock.advance(min(left, 0.01))

    route = Route(Target(output, "east", "q"))
    task = Task("copy", Origin("west", "orders"), [], Router([route]), None, Keep(), None, rate=rate, hold=hold)
    return Pipeline(task, JournalInMemory(), output.clock, sleep)


def run_side_by_side(pipeline: Pipeline, batches: int, each: int) -> None:
    async def run() -> None:
        numbers = iter(range(1, batches * each + 1))
        sent = await asyncio.gather(
            *(pipeline.run([delivered(next(numbers)) for _ in range(each)]) for _ in range(batches))
        )
        assert sent == [{Outcome.SENT: each}] * batches

    asyncio.run(run())


def test_batches_of_all_lanes_together_keep_the_rate() -> None:
    output = ClockedOutput(clock_at_delivery())
    started = output.clock.monotonic()
    run_side_by_side(line(output, rate=50), batches=8, each=25)
    begins = sorted(set(output.times))
    assert abs(begins[0] - started) < 0.1
    assert all(later - earlier > 0.4 for earlier, later in pairwise(begins))
    assert 3.4 < begins[-1] - started < 3.7  # 200 messages at 50 a second, the last 25 at once


def test_without_a_rate_no_batch_waits() -> None:
    output = ClockedOutput(clock_at_delivery())
    run_side_by_side(line(output), batches=8, each=25)
    assert len(set(output.times)) == 1


def test_a_target_that_asked_one_lane_to_wait_is_left_alone_by_the_others() -> None:
    output = ClockedOutput(clock_at_delivery(), busy_seconds=4)
    started = output.clock.monotonic()
    pipeline = line(output)

    async def run() -> None:
        first = asyncio.create_task(pipeline.run([delivered(1)]))
        await output.asked.wait()
        await asyncio.gather(first, *(pipeline.run([delivered(number)]) for number in range(2, 9)))

    asyncio.run(run())
    assert len([each for each in output.times if each < output.until]) == 1
    assert len(output.ids("q")) == 8
    assert output.clock.monotonic() - started < 5


def test_a_target_that_is_busy_for_long_is_asked_again_after_half_a_minute() -> None:
    pace, target = Pace(None), Target(OutputThatAccepts(), "east", "q")
    pace.note(target, TargetUnavailable("busy", retry_after=timedelta(hours=1)), 100)
    assert pace.refusal(target, 129) is not None
    assert pace.refusal(target, 131) is None


def test_an_outage_without_a_time_is_no_reason_to_wait() -> None:
    pace, target = Pace(None), Target(OutputThatAccepts(), "east", "q")
    pace.note(target, TargetUnavailable("away"), 100)
    assert pace.refusal(target, 100) is None


@given(st.lists(st.tuples(st.integers(0, 100), st.floats(0, 5)), min_size=1, max_size=30), st.floats(0.5, 1000))
def test_turns_never_exceed_the_rate(calls: list[tuple[int, float]], rate: float) -> None:
    pace, now = Pace(rate), 0.0
    turns = []
    for count, pause in calls:
        now += pause
        while wait := pace.turn(count, now):
            now += wait
        turns.append((now, count))
    for (earlier, count), (later, _) in pairwise(turns):
        assert later - earlier >= count / rate - 1e-6


def test_a_batch_that_gives_up_leaves_its_turn_to_the_next() -> None:
    """With 5 messages a second, 8 batches of 25 and 12 seconds for each, some give up: none of the others may."""
    output = ClockedOutput(clock_at_delivery())
    pipeline = line(output, rate=5, hold=timedelta(seconds=12))
    started, names = output.clock.monotonic(), itertools.count(1)

    async def lane() -> int:
        sent = 0
        while output.clock.monotonic() - started < 120:
            try:
                until = round((output.clock.now().timestamp() + 60) * 1000)
                outcomes = await pipeline.run([delivered(next(names), locked_until=until) for _ in range(25)])
            except TargetUnavailable:
                output.clock.advance(0.1)  # until the host delivers the batch again
                continue
            sent += outcomes[Outcome.SENT]
        return sent

    async def run() -> int:
        return sum(await asyncio.gather(*(lane() for _ in range(8))))

    sent = asyncio.run(run())
    assert 500 <= sent <= 700  # 120 seconds at 5 a second
