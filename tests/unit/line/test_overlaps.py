"""Messages that the source delivers again while an earlier delivery of them is in hand."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from shared.errors import BuswayError, TargetRefused, TargetUnavailable
from shared.protocols import Outcome, Outgoing
from tests.fakes import OutputThatAccepts
from tests.messages import ENQUEUED, delivered
from tests.unit.line.virtual_line import Line, token


class OutputThatHolds(OutputThatAccepts):
    """Answers the first call when it is released, with its error if it has one."""

    def __init__(self) -> None:
        super().__init__()
        self.released = asyncio.Event()
        self.error: BuswayError | None = None

    async def send(
        self, entity: str, messages: Sequence[Outgoing], *, timeout_seconds: float
    ) -> list[BuswayError | None]:
        if not self.released.is_set():
            await self.released.wait()
            if self.error is not None:
                return [self.error] * len(messages)
        return await super().send(entity, messages, timeout_seconds=timeout_seconds)


def ids(line: Line[OutputThatHolds]) -> list[str | None]:
    return [message.message_id for message in line.output.accepted.get("orders", [])]


async def twice(
    line: Line[OutputThatHolds], second: list[bytes], *, release_seconds: float = 14, lock_seconds: int = 60
) -> list[object]:
    """Deliver two messages, and *second* while the target holds their answer; release it then or at the end."""
    until = ENQUEUED + lock_seconds * 1000
    batch = [delivered(number, message_id=f"m{number}", locked_until=until) for number in (1, 2)]
    first = asyncio.create_task(line.pipeline.run(batch, None, [token(1), token(2)]))
    await asyncio.sleep(0)
    line.at[release_seconds] = line.output.released.set
    async with asyncio.timeout(5):
        results = list(await asyncio.gather(line.pipeline.run(second), return_exceptions=True))
    line.output.released.set()
    return [*await asyncio.gather(first, return_exceptions=True), *results]


def test_a_redelivery_waits_for_the_first_delivery_and_takes_its_results() -> None:
    line = Line(OutputThatHolds(), has_locks=False)
    again = [delivered(number, message_id=f"m{number}") for number in (2, 3)]
    assert asyncio.run(twice(line, again)) == [{Outcome.SENT: 2}, {Outcome.SENT: 2}]
    assert ids(line) == ["m1", "m2", "m3"]


def test_a_redelivery_is_sent_if_the_first_delivery_was_not() -> None:
    line = Line(OutputThatHolds(), error=TargetRefused("no service"))
    line.output.error = TargetUnavailable("east/orders: down")
    again = [delivered(number, message_id=f"m{number}") for number in (1, 2)]
    first, second = asyncio.run(twice(line, again, lock_seconds=20))
    assert isinstance(first, TargetUnavailable)
    assert second == {Outcome.SENT: 2}
    assert ids(line) == ["m1", "m2"]


def test_a_redelivery_goes_back_to_its_source_if_the_first_delivery_takes_longer_than_it_may() -> None:
    line = Line(OutputThatHolds(), has_locks=False, hold=timedelta(seconds=30))
    again = [delivered(number, message_id=f"m{number}") for number in (1, 2)]
    first, second = asyncio.run(twice(line, again, release_seconds=40))
    assert first == {Outcome.SENT: 2}
    assert isinstance(second, TargetUnavailable)
    assert ids(line) == ["m1", "m2"]


def test_other_messages_do_not_wait() -> None:
    line = Line(OutputThatHolds(), has_locks=False)

    async def other() -> None:
        first = asyncio.create_task(line.pipeline.run([delivered(1, message_id="m1")]))
        await asyncio.sleep(0)
        second = asyncio.create_task(line.pipeline.run([delivered(2, message_id="m2")]))
        await asyncio.sleep(0)
        line.output.released.set()
        await asyncio.gather(first, second)

    asyncio.run(other())
    assert sorted(map(str, ids(line))) == ["m1", "m2"]
    assert line.clock.monotonic() == 0
