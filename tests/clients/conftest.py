"""The two namespaces that all tests of the clients share, each with queues of its own."""

import itertools
from collections.abc import Iterator

import pytest

from busway_broker.thread import RunningBroker
from tests.clients.site import QUEUES, Site, namespaces
from tests.impatience import impatient_clients

_numbers = itertools.count()


@pytest.fixture(scope="module", autouse=True)
def _impatient_clients() -> Iterator[None]:
    # Not for the session: tests elsewhere that come later get the SDKs as they are.
    with impatient_clients():
        yield


@pytest.fixture(scope="session")
def shared_broker() -> Iterator[RunningBroker]:
    """Return a broker with the namespaces west and east."""
    with RunningBroker(namespaces()) as running:
        yield running


def fresh() -> int:
    """Return the number of queues that no other test uses."""
    number = next(_numbers)
    assert number < QUEUES, f"the tests of one worker use more than {QUEUES} queues of a kind"
    return number


@pytest.fixture
def site(request: pytest.FixtureRequest, shared_broker: RunningBroker) -> Iterator[Site]:
    """Return both namespaces, and an application: with asyncio, from which the synchronous code is generated."""
    with Site(getattr(request, "param", "aio"), shared_broker, fresh) as opened:
        yield opened


@pytest.fixture
def sync_site(shared_broker: RunningBroker) -> Iterator[Site]:
    """Return both namespaces, and a synchronous application, whose calls need no event loop."""
    with Site("sync", shared_broker, fresh) as opened:
        yield opened
