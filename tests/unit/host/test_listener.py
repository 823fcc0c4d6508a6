"""How long a listener waits before it listens again, in virtual time."""

import asyncio
from collections.abc import Callable

import pytest

from host.checkpoints import Checkpoints, Partition
from host.listener import Stopping, keep_listening
from host.platform import Losing
from host.settings import EventHubsOptions
from host.triggers.event_hubs import EventHubsListener
from host.worker import Function
from shared.clock import SystemClock
from shared.errors import TargetRefused, TargetUnavailable


def pauses_of(attempts: list[bool], error: Exception | None = None) -> list[float]:
    """Listen in vain, once for each of *attempts*, which say whether the source lets the listener in first."""
    pauses: list[float] = []
    left = iter(attempts)

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    stopping = Stopping(sleep)

    async def listen(let_in: Callable[[], None]) -> None:
        is_let_in = next(left, None)
        if is_let_in is None:
            stopping.request()
            return
        if is_let_in:
            let_in()
        raise error or TargetUnavailable("source: closed")

    asyncio.run(keep_listening("task", stopping, listen))
    return pauses


def test_pauses_grow_while_the_source_is_unavailable() -> None:
    assert pauses_of([False] * 8) == [0.5, 1, 2, 4, 8, 16, 30, 30]


def test_a_connection_that_is_cut_is_opened_again_soon_however_often() -> None:
    assert pauses_of([True] * 5) == [0.5] * 5
    assert pauses_of([False, False, True, False]) == [0.5, 1, 0.5, 1]


def test_a_disabled_source_is_asked_twice_a_second_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Azure's host writes an exception for each: 7,200 in an hour, for each lane of each instance."""
    pauses = pauses_of([False] * 7_200, TargetRefused("west/q: the service refused with com.microsoft:entity-disabled"))
    assert sum(pauses) == 3_600
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_request_to_stop_ends_the_wait(is_stopped: bool) -> None:
    async def wait() -> bool:
        stopping = Stopping()
        if is_stopped:
            asyncio.get_running_loop().call_soon(stopping.request)
        await stopping.wait(3600 if is_stopped else 0.01)
        return bool(stopping)

    assert asyncio.run(asyncio.wait_for(wait(), 60)) is is_stopped


class Hub:
    """A hub of one partition that cannot be read; the host stops then."""

    connection_name, name, consumer_group, namespace = "C", "h", "$Default", "n"

    def __init__(self, stopping: Stopping) -> None:
        self._stopping = stopping

    async def partition_ids(self) -> list[str]:
        return ["0"]

    async def open(self, *_: object, **__: object) -> None:
        self._stopping.request()
        raise TargetUnavailable("hub: closed")

    async def close(self) -> None:
        """Have nothing to close."""


@pytest.mark.parametrize(("offset", "expected"), [(None, []), ("7", [150.0])])
def test_a_restarted_host_waits_for_the_partitions_that_another_had(offset: str | None, expected: list[float]) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    checkpoints, stopping = Checkpoints(), Stopping(sleep)
    if offset is not None:
        checkpoints.set(Partition("C", "h", "$Default", "0"), offset)
    listener = EventHubsListener(
        Function("f", "f", {"name": "m"}, {}, None),
        Hub(stopping),  # type: ignore[arg-type] # with the methods that the listener calls
        EventHubsOptions(),
        None,  # type: ignore[arg-type] # nothing is invoked
        SystemClock(),
        stopping=stopping,
        checkpoints=checkpoints,
        wire=False,
        losing=Losing(),
        steal_after=None,
        partition_wait=150.0,
    )
    asyncio.run(listener.run())
    assert pauses == expected
