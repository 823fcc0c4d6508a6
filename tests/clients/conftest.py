"""Two namespaces on the local broker, and applications with the SDKs of both kinds."""

import gc
import tracemalloc  # noqa: F401 - pytest would import it while it tells what is collected, and an import collects
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.core.namespace import Namespace
from busway_broker.thread import NamespaceFaults, RunningBroker
from shared.message.arrival import Origin
from shared.message.message import Message
from tests.clients.applications import Application
from tests.impatience import impatient_clients
from tests.messages import received

NAMES = ("west", "east")
QUEUES = 60


@pytest.fixture(scope="module", autouse=True)
def _impatient_clients() -> Iterator[None]:
    # Not for the session: tests elsewhere that come later get the SDKs as they are.
    with impatient_clients():
        yield


def _namespace(name: str) -> NamespaceConfig:
    queues = [
        QueueConfig(name=f"{kind}-{number}", **options)
        for kind, options in (
            ("plain", {}),
            ("sessions", {"requires_session": True}),
            ("twice", {"max_delivery_count": 2, "lock_duration": timedelta(seconds=30)}),
        )
        for number in range(QUEUES)
    ]
    return NamespaceConfig(name=name, queues=tuple(queues))


class Pair:
    """Both namespaces, and what they hold."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker
        self.places = {name: broker.connection_string(name) for name in NAMES}
        self._down: set[str] = set()

    def go_down(self, name: str) -> None:
        self.broker.faults(name).go_down()
        self._down.add(name)

    def come_up(self, name: str) -> None:
        if name in self._down:
            self.broker.faults(name).come_up()
            self._down.remove(name)

    def faults(self, name: str) -> NamespaceFaults:
        return self.broker.faults(name)

    def held(self, name: str, entity: str) -> list[Message]:
        """Return the messages that a queue holds; scheduled ones are not there yet."""

        def look(namespace: Namespace) -> list[bytes]:
            return [each.encode() for each in namespace.store(entity).peek(0)]

        return [received(encoded, Origin("", "")) for encoded in self.broker.inspect(name, look)]

    def ids(self, name: str, entity: str) -> list[object]:
        return [None if each.message_id is None else each.message_id.payload for each in self.held(name, entity)]

    def bodies(self, name: str, entity: str) -> list[str]:
        return [(each.body or b"").decode() for each in self.held(name, entity)]

    def locked(self, name: str, entity: str) -> int:
        """Return how many messages of a queue are locked."""
        return self.broker.inspect(name, lambda namespace: len(namespace.store(entity)._locks))

    def dead(self, name: str, entity: str) -> list[object]:
        return self.ids(name, f"{entity}/$DeadLetterQueue")


@pytest.fixture(scope="module")
def _broker() -> Iterator[RunningBroker]:
    with RunningBroker([_namespace(name) for name in NAMES]) as running:
        yield running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The SDKs leave a socket open when a connection fails while it is being opened.
    for item in items:
        if "clients" in item.path.parts:
            item.add_marker(pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(scope="module", autouse=True)
def _collected() -> Iterator[None]:
    """Collect what the SDKs have left over while its warnings are still ignored."""
    yield
    gc.collect()


@pytest.fixture
def pair(_broker: RunningBroker) -> Iterator[Pair]:
    """Return both namespaces, without faults."""
    both = Pair(_broker)
    yield both
    for name in NAMES:
        both.faults(name).clear()
        both.come_up(name)


@pytest.fixture(scope="module")
def queue(_broker: RunningBroker) -> Callable[..., str]:
    """Return the name of a queue of a kind that no other test uses."""
    # Of a module, as its broker: how many modules a worker runs must not decide whether there is another queue.
    given: Counter[str] = Counter()

    def another(kind: str = "plain") -> str:
        number = given[kind]
        assert number < QUEUES, f"the module's tests use more than {QUEUES} queues of the kind {kind}"
        given[kind] += 1
        return f"{kind}-{number}"

    return another


@pytest.fixture(params=["sync", "aio"])
def application(request: pytest.FixtureRequest, pair: Pair) -> Iterator[Application]:
    with Application(request.param, pair.places) as opened:
        yield opened
