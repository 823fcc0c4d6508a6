"""When a client leaves its namespace, and which endpoints it tries, under a clock of the test."""

from types import SimpleNamespace
from typing import Any, Self

import pytest

from busway_clients import FollowingReceiver
from busway_clients.endpoints.endpoint import Endpoint
from tests.clients.endpoints.following import endpoint

WEST, EAST, NORTH = (endpoint(site) for site in ("west", "east", "north"))
FALLBACK = Endpoint(WEST.namespace, 443)


class Sdk:
    """The SDK at any namespace: each receiver has one message."""

    session = None

    def __init__(self) -> None:
        self._messages = [SimpleNamespace(lock_token="token", locked_until_utc=None)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def receive_messages(self, *_: object) -> list[Any]:
        taken, self._messages = self._messages, []
        return taken

    def complete_message(self, _: object) -> None:
        pass


class World:
    """A watch, a clock, the endpoints that cannot be opened and those that were tried."""

    def __init__(self, *wanted: Endpoint) -> None:
        self.wanted = wanted
        self.seconds = 0.0
        self.closed: set[Endpoint] = set()
        self.tried: list[Endpoint] = []
        watch: Any = SimpleNamespace(endpoints=lambda: self.wanted, consult=lambda: self.wanted)
        sdk: Any = lambda _: Sdk()  # noqa: E731 - of any type
        self.receiver = FollowingReceiver(watch, self._connect, sdk, monotonic=lambda: self.seconds)

    def _connect(self, to: Endpoint) -> Any:
        self.tried.append(to)
        if to in self.closed:
            raise ConnectionError
        return Sdk()

    def receive(self, seconds: float, *wanted: Endpoint) -> Endpoint | None:
        self.seconds, self.wanted = seconds, wanted
        self.receiver.receive_messages(max_wait_time=0)
        return self.receiver.endpoint


def test_the_wait_for_unsettled_messages_is_limited_and_counts_from_the_change() -> None:
    world = World(WEST)
    for seconds, wanted, expected in [
        (0, (WEST,), WEST),
        (50, (FALLBACK, WEST), WEST),  # the same namespace
        (100, (EAST,), WEST),
        (129.9, (EAST,), WEST),
        (129.9, (NORTH,), WEST),  # another change, another wait
        (150, (WEST,), WEST),  # a change that is reverted
        (155, (NORTH,), WEST),
        (184.9, (NORTH,), WEST),
        (185, (NORTH,), NORTH),
    ]:
        assert world.receive(seconds, *wanted) == expected
    assert world.tried == [WEST, NORTH]


def test_settled_messages_delay_no_move() -> None:
    world = World(WEST)
    [message] = world.receiver.receive_messages(max_wait_time=0)
    assert world.receive(100, EAST) == WEST
    world.receiver.complete_message(message)
    assert world.receive(101, EAST) == EAST


def test_an_endpoint_that_could_not_be_opened_is_not_tried_for_a_while() -> None:
    world = World(WEST)
    [message] = world.receiver.receive_messages(max_wait_time=0)
    world.receiver.complete_message(message)
    world.closed = {EAST}
    for seconds, wanted, expected, tried in [
        (10, (EAST,), WEST, [EAST]),
        (14.9, (EAST,), WEST, []),
        (15, (EAST,), WEST, [EAST]),
        (16, (EAST, WEST, NORTH), WEST, [EAST]),  # another answer; only those before the current one
        (17, (EAST, NORTH), NORTH, [EAST, NORTH]),
        (21.9, (EAST, NORTH), NORTH, []),
    ]:
        world.tried.clear()
        assert (world.receive(seconds, *wanted), world.tried) == (expected, tried)
    world.closed.clear()
    assert world.receive(100, EAST, NORTH) == NORTH  # which gave a message
    assert world.receive(130, EAST, NORTH) == EAST


def test_the_error_of_the_first_link_is_raised() -> None:
    world = World(WEST)
    world.closed = {WEST, EAST}
    with pytest.raises(ConnectionError):
        world.receive(0, WEST, EAST)
    assert world.tried == [WEST, EAST]
