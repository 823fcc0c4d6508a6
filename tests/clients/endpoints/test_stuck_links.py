"""Links that are stuck in the SDK: as of the synchronous one at a namespace that accepts connections and is silent."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, Self

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError

from busway_clients import FollowingReceiver, FollowingSender, PassiveSender
from busway_clients.endpoints.endpoint import Endpoint
from tests.clients.endpoints.following import endpoint


class Sdk:
    """The SDK at one namespace; with an event, its calls return only once that is set."""

    session = None

    def __init__(self, let: threading.Event | None = None) -> None:
        self._let = let

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._wait()

    def send_messages(self, *_: Any, **__: Any) -> None:
        self._wait()

    def receive_messages(self, *_: Any) -> list[Any]:
        self._wait()
        return []

    def _wait(self) -> None:
        assert self._let is None or self._let.wait(30)


class Watch:
    """A watch whose source names another site than the one that it knows."""

    def __init__(self, named: str) -> None:
        self._known, self._named = (endpoint("west"),), (endpoint(named),)

    def endpoints(self) -> tuple[Endpoint, ...]:
        return self._known

    def consult(self) -> tuple[Endpoint, ...]:
        self._known = self._named
        return self._named


def itself(client: Any) -> Any:
    return client


def send(watch: Watch, connect: Any) -> tuple[Any, Callable[[], object]]:
    sender = FollowingSender(watch, connect, itself)
    return sender, lambda: sender.send_messages(ServiceBusMessage("x"), timeout=0.1)


def receive(watch: Watch, connect: Any) -> tuple[Any, Callable[[], object]]:
    receiver = FollowingReceiver(watch, connect, itself, open_seconds=0.5)
    return receiver, lambda: receiver.receive_messages(max_wait_time=0.1)


@pytest.fixture
def let() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("use", [send, receive])
@pytest.mark.parametrize("named", ["west", "east"])
def test_a_call_that_is_stuck_ends_and_holds_no_later_one(use: Any, named: str, let: threading.Event) -> None:
    client, call = use(Watch(named), lambda to: Sdk(let if to == endpoint("west") else None))
    began = time.monotonic()
    if named == "west":
        for _ in range(2):
            with pytest.raises(OperationTimeoutError, match="the SDK did not return within"):
                call()
        assert client.endpoint is None
    else:
        call()
        assert client.endpoint == endpoint("east")
    client.close()
    assert time.monotonic() - began < 15


@pytest.mark.parametrize("use", [send, receive])
def test_a_link_whose_call_was_interrupted_is_let_go(use: Any, let: threading.Event) -> None:
    client, call = use(Watch("west"), lambda _: Sdk(let))
    threading.Timer(0.2, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        call()
    assert client.endpoint is None


def test_one_link_to_an_endpoint_opens_at_a_time_and_one_that_opens_late_is_closed(let: threading.Event) -> None:
    begun, closed = [], threading.Event()

    class Late(Sdk):
        def __enter__(self) -> Self:
            begun.append(self)
            assert let.wait(30)
            return self

        def __exit__(self, *_: object) -> None:
            closed.set()

    with FollowingSender(Watch("west"), lambda _: Late(), lambda _: Sdk(), open_seconds=0.1) as sender:  # type: ignore[arg-type, return-value] # as the SDK
        for _ in range(3):
            with pytest.raises(TimeoutError, match=r"within 0\.1 s"):
                sender.send_messages(ServiceBusMessage("x"))
        assert len(begun) == 1
        let.set()
        assert closed.wait(30)
        sender.send_messages(ServiceBusMessage("x"))
        assert len(begun) == 2


def test_a_call_of_the_sdk_has_the_context_of_its_caller() -> None:
    span, seen = ContextVar("span", default="none"), []

    class Tracing(Sdk):
        def send_messages(self, *_: Any, **__: Any) -> None:
            seen.append(span.get())

    span.set("of the application")
    with FollowingSender(Watch("west"), lambda _: Tracing(), itself) as following:  # type: ignore[arg-type, return-value] # as the SDK
        following.send_messages(ServiceBusMessage("x"))
    senders: dict[str, Any] = {"west": Tracing()}
    PassiveSender(senders).send(ServiceBusMessage("x"))
    assert seen == ["of the application"] * 2
