"""Opening links beside another one: how long a caller waits, and what happens to late ones."""

import asyncio
import threading
from typing import Any

import pytest

from busway_clients._sync.endpoints.link import LinkOpener, StillOpening
from busway_clients.aio.endpoints.link import LinkOpener as AsyncLinkOpener
from busway_clients.aio.endpoints.link import StillOpening as AsyncStillOpening
from busway_clients.endpoints.endpoint import Endpoint

WEST, EAST = Endpoint("west.servicebus.windows.net"), Endpoint("east.servicebus.windows.net")


class Doors:
    """Links that open when they are let."""

    def __init__(self, open_seconds: Any) -> None:
        self.begun: list[Any] = []
        self.let = threading.Event()
        self.closed = threading.Event()
        self.openings = LinkOpener(self.open, lambda _: self.closed.set(), open_seconds, beside_seconds=0.01)

    def open(self, endpoint: Any) -> str:
        self.begun.append(endpoint)
        assert self.let.wait(10)
        return f"link {len(self.begun)}"


def test_endpoint_has_one_opening_thread_at_a_time() -> None:
    doors = Doors(0.01)
    for beside in (True, False, True):
        with pytest.raises(TimeoutError):
            doors.openings.open(EAST, beside=beside)
    assert doors.begun == [EAST]
    doors.let.set()
    assert doors.closed.wait(10)
    assert doors.openings.open(EAST, beside=False) == "link 2"


def test_link_that_opens_late_is_used() -> None:
    doors = Doors(60.0)
    with pytest.raises(StillOpening):
        doors.openings.open(EAST, beside=True)
    doors.let.set()
    assert doors.openings.open(EAST, beside=False) == "link 1"
    assert doors.begun == [EAST]


def test_an_abandoned_link_is_closed() -> None:
    doors = Doors(60.0)
    with pytest.raises(StillOpening):
        doors.openings.open(EAST, beside=True)
    doors.openings.abandon()
    doors.let.set()
    assert doors.closed.wait(10)


def test_error_of_an_opening_is_raised() -> None:
    def fail(_: Any) -> None:
        raise ConnectionError("refused")

    openings = LinkOpener(fail, lambda _: None, 10.0)
    for _ in range(2):
        with pytest.raises(ConnectionError, match="refused"):
            openings.open(WEST, beside=True)


def test_asyncio_behaves_the_same() -> None:
    async def main() -> None:
        let, closed, begun = asyncio.Event(), [], []

        async def opening(endpoint: Any) -> str:
            begun.append(endpoint)
            await let.wait()
            return f"link {len(begun)}"

        async def closing(link: Any) -> None:
            closed.append(link)

        openings = AsyncLinkOpener(opening, closing, 0.01)
        with pytest.raises(TimeoutError):
            await openings.open(EAST, beside=True)
        openings = AsyncLinkOpener(opening, closing, 60.0, beside_seconds=0.01)
        with pytest.raises(AsyncStillOpening):
            await openings.open(EAST, beside=True)
        with pytest.raises(AsyncStillOpening):
            await openings.open(WEST, beside=True)
        let.set()
        assert await openings.open(EAST, beside=False) == "link 3"
        await asyncio.sleep(0)
        await openings.abandon()
        assert (begun, closed) == ([EAST, EAST, WEST], ["link 3"])

    asyncio.run(main())
