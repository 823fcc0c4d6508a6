"""What the SDK's clients see of links that end, and of messages on links that close: what was seen on Azure."""

import asyncio
import datetime as dt
import gc
from collections.abc import Iterator

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.exceptions import ServiceBusError

from busway_broker.config import LinkLimits, NamespaceConfig, QueueConfig
from busway_broker.thread import RunningBroker
from shared.clock import ManualClock
from shared.resend.places import Place
from shared.resend.receiver import Receiver
from shared.resend.source import SessionUnavailable

# The SDK does not close the socket of a connection that the service has closed; here it is collected.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    queues = (QueueConfig(name="q"), QueueConfig(name="s", requires_session=True))
    with RunningBroker([NamespaceConfig(name="n", queues=queues)], ManualClock(dt.datetime.now(dt.UTC))) as running:
        yield running


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(broker.connection_string("n"), retry_backoff_factor=0.1) as client:
        yield client
    gc.collect()


def send(client: ServiceBusClient, queue: str, *texts: str) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(text, session_id="a" if queue == "s" else None) for text in texts])


def test_clients_open_idle_links_again(client: ServiceBusClient, broker: RunningBroker) -> None:
    """SR4, SR37, SR38: the links and then the connections of a client that pauses are gone."""
    with client.get_queue_sender("q") as sender, client.get_queue_receiver("q") as receiver:
        for pause in (0, 601, 601 + 301):
            broker.advance(min(pause, 601))
            broker.advance(max(pause - 601, 0))
            sender.send_messages(ServiceBusMessage(str(pause)))
            (message,) = receiver.receive_messages(1, max_wait_time=5)
            receiver.complete_message(message)
            assert str(message) == str(pause)


@pytest.mark.parametrize("ends", ["idle", "upgrade"])
def test_a_session_is_lost_with_its_link_and_its_messages_come_again_uncounted(
    client: ServiceBusClient, broker: RunningBroker, ends: str
) -> None:
    """SR2 and SR53 for an idle link, SR25 for an upgrade: the SDK does not open a session again."""
    send(client, "s", "one")
    with client.get_queue_receiver("s", session_id="a") as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=5)
        if ends == "upgrade":
            broker.faults("n").upgrade()
        for _ in range(11 if ends == "idle" else 0):
            # A renewal over another connection keeps the lock, not the link.
            broker.inspect("n", lambda namespace: namespace.store("s").renew_session_lock("a"))  # type: ignore[attr-defined] # a session store
            broker.advance(55)
        with pytest.raises(ServiceBusError):
            receiver.complete_message(message)
    with client.get_queue_receiver("s", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5) as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=5)
        assert (str(message), message.delivery_count) == ("one", 0)


@pytest.mark.parametrize("is_released", [True, False])
def test_a_receiver_of_dead_letters_waits_for_a_session_that_was_released(is_released: bool) -> None:
    """SR28: not for one that another receiver keeps."""
    links = LinkLimits(session_handover=dt.timedelta(seconds=0.6))
    namespace = NamespaceConfig(name="n", queues=(QueueConfig(name="s", requires_session=True),), links=links)

    async def receive(settings: dict[str, str]) -> None:
        async with Receiver(Place("n", "n", "N", "s"), settings, "a") as receiver:
            assert [message.key for message in await receiver.receive(1, 5.0)] != []

    with RunningBroker([namespace]) as broker:
        text = broker.connection_string("n")
        with ServiceBusClient.from_connection_string(text) as client:
            send(client, "s", "one")
            with client.get_queue_receiver("s", session_id="a"):
                if not is_released:
                    with pytest.raises(SessionUnavailable):
                        asyncio.run(receive({"N": text}))
            if is_released:
                asyncio.run(receive({"N": text}))


def test_what_was_delivered_destructively_and_not_read_is_gone(client: ServiceBusClient, broker: RunningBroker) -> None:
    """SR24: the credit brings more than the client reads."""
    send(client, "q", "one", "two", "three")
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_queue_receiver("q", receive_mode=mode, prefetch_count=3) as receiver:
        assert [str(message) for message in receiver.receive_messages(1, max_wait_time=5)] == ["one"]
    assert broker.counts("n")["q"].active == 0


@pytest.mark.parametrize(("prefetch", "order"), [(0, ["a", "a", "b", "c"]), (2, ["a", "b", "c", "a"])])
def test_an_abandoned_message_of_a_session_comes_first_only_without_prefetch(
    client: ServiceBusClient, prefetch: int, order: list[str]
) -> None:
    """SR27."""
    send(client, "s", "a", "b", "c")
    with client.get_queue_receiver("s", session_id="a", prefetch_count=prefetch) as receiver:
        seen = []
        for _ in order:
            (message,) = receiver.receive_messages(1, max_wait_time=5)
            seen.append(str(message))
            if len(seen) == 1:
                receiver.abandon_message(message)
            else:
                receiver.complete_message(message)
    assert seen == order
