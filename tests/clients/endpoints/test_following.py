"""Senders and receivers that follow, on two namespaces of the local broker, through the SDK."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.exceptions import (
    MessageLockLostError,
    OperationTimeoutError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)

from busway_clients.aio.endpoints.receiver import FollowingReceiver as AsyncReceiver
from busway_clients.aio.endpoints.sender import FollowingSender as AsyncSender
from busway_clients.aio.endpoints.watch import EndpointWatch as AsyncWatch
from busway_clients.endpoints.cache import EndpointCache
from busway_clients.endpoints.dns import DnsSource
from busway_clients.endpoints.endpoint import Answer, Endpoint, Offer
from busway_clients.endpoints.receiver import FollowingReceiver
from busway_clients.endpoints.sender import FollowingSender
from busway_clients.endpoints.watch import EndpointWatch
from local.broker.config import NamespaceConfig, QueueConfig
from local.broker.faults import Effect, Fault, Operation
from local.broker.thread import RunningBroker
from tests.clients.endpoints.name_server import NameServer
from tests.impatience import impatient_clients

pytest_plugins = "local.broker.fixture"

# The SDK leaves sockets of connections that broke, or links that were refused, to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module", autouse=True)
def hasty_clients() -> Iterator[Any]:
    with impatient_clients():
        yield


SITES = ("west", "east")
DOMAIN = "servicebus.windows.net"


@pytest.fixture(scope="module")
def broker_namespaces() -> list[Any]:
    queues = (QueueConfig(name="orders"), QueueConfig(name="sessions", requires_session=True))
    return [NamespaceConfig(name=site, queues=queues) for site in SITES]


def endpoint(site: str, port: int = 5671) -> Endpoint:
    return Endpoint(f"{site}.{DOMAIN}", port)


class PinnableWatch:
    """A watch whose answer a test can keep until it is consulted."""

    def __init__(self, watch: EndpointWatch) -> None:
        self.watch = watch
        self.pinned: tuple[Endpoint, ...] | None = None
        self.consultations = 0

    def pin(self) -> None:
        self.pinned = self.watch.endpoints()

    def endpoints(self) -> tuple[Endpoint, ...]:
        return self.pinned or self.watch.endpoints()

    def consult(self) -> tuple[Endpoint, ...]:
        self.consultations += 1
        return self.watch.consult()


class Register:
    """A source of one line that a test rewrites, never cached."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker
        self.wanted = [endpoint("west")]
        self.connected: list[Any] = []

    def point_to(self, *endpoints: Any) -> None:
        self.wanted = list(endpoints)

    def read(self) -> Answer:
        return Answer("site", tuple(Offer(each, index) for index, each in enumerate(self.wanted)), 0)

    def watch(self, kind: Any = EndpointWatch) -> Any:
        ticks = iter(range(0, 10**9, 400))
        return kind(self, cache=EndpointCache(), monotonic=lambda: float(next(ticks)))

    def connect(self, to: Any, kind: Any = ServiceBusClient) -> Any:
        self.connected.append(to)
        site, _, domain = to.namespace.partition(".")
        if domain != DOMAIN or site not in SITES:
            raise KeyError(to.namespace)
        if to.port == 443:
            raise ConnectionError("port 443 is closed")
        return kind.from_connection_string(
            self.broker.connection_string(site), retry_total=1, retry_backoff_factor=0.01
        )

    def sender(self, queue: str = "orders", **options: Any) -> FollowingSender:
        self.watched = PinnableWatch(self.watch())
        return FollowingSender(self.watched, self.connect, lambda client: client.get_queue_sender(queue), **options)

    def receiver(self, queue: str = "orders", drain_seconds: float = 20.0, **options: Any) -> FollowingReceiver:
        return FollowingReceiver(
            self.watch(),
            self.connect,
            lambda client: client.get_queue_receiver(queue, **options),
            drain_seconds=drain_seconds,
        )


@pytest.fixture
def register(broker: RunningBroker) -> Register:
    return Register(broker)


def put(broker: RunningBroker, site: str, *bodies: Any, queue: str = "orders", session: str | None = None) -> None:
    with (
        ServiceBusClient.from_connection_string(broker.connection_string(site)) as client,
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages([ServiceBusMessage(body, session_id=session, message_id=body) for body in bodies])


def held(broker: RunningBroker, queue: str = "orders") -> list[Any]:
    return [broker.counts(site)[queue].active for site in SITES]


def ids(broker: RunningBroker, site: str, queue: str = "orders") -> Any:
    def look(namespace: Any) -> list[Any]:
        return [str(message.content.message_id) for message in namespace.store(queue).peek(0)]

    return broker.inspect(site, look)


def test_sender_follows_the_source(register: Register, broker: RunningBroker) -> None:
    with register.sender() as sender:
        sender.send_messages(ServiceBusMessage("a"))
        register.point_to(endpoint("east"))
        sender.send_messages([ServiceBusMessage("b"), ServiceBusMessage("c")])
        assert sender.endpoint == endpoint("east")
        register.point_to(endpoint("west"))
        batch = sender.create_message_batch()
        batch.add_message(ServiceBusMessage("d"))
        sender.send_messages(batch)
    assert held(broker) == [2, 2]


@pytest.mark.parametrize("wrong", [Endpoint("bus.example.org"), endpoint("east", 443)], ids=["unknown", "closed"])
def test_sender_keeps_its_link_if_the_other_cannot_be_opened(
    wrong: Any, register: Register, broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    seconds = [0.0]
    with register.sender(monotonic=lambda: seconds[0]) as sender:
        sender.send_messages(ServiceBusMessage("a"))
        register.point_to(wrong)
        sender.send_messages(ServiceBusMessage("b"))
        sender.send_messages(ServiceBusMessage("c"))
        assert register.connected == [endpoint("west"), wrong]
        assert f"{wrong} cannot be opened" in caplog.text
        seconds[0] += 5
        register.point_to(wrong)
        sender.send_messages(ServiceBusMessage("d"))
        assert register.connected == [endpoint("west"), wrong, wrong]
        register.point_to(wrong, endpoint("east"))
        sender.send_messages(ServiceBusMessage("e"))
    assert held(broker) == [4, 1]


def test_invalid_endpoint_is_reported_and_the_sender_stays(
    register: Register, broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, closing(WebSite()) as site:
        ports = {"silent": silent.getsockname()[1], "website": site.port}

        def connect(to: Any) -> Any:
            port = ports.get(to.namespace.partition(".")[0])
            if port is None:
                return register.connect(to)
            text = f"Endpoint=sb://localhost:{port};SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true"
            return ServiceBusClient.from_connection_string(text, retry_total=0)

        sender = FollowingSender(
            register.watch(), connect, lambda client: client.get_queue_sender("orders"), open_seconds=1.5
        )
        sent = 1
        with sender:
            sender.send_messages(ServiceBusMessage("a"))
            for name in ports:
                register.point_to(endpoint(name))
                # Sends go on meanwhile.
                while f"{endpoint(name)} cannot be opened" not in caplog.text:
                    sender.send_messages(ServiceBusMessage("b"))
                    sent += 1
    assert sent > 5
    assert held(broker) == [sent, 0]


class WebSite:
    """Something that is there and speaks HTTP."""

    def __init__(self) -> None:
        class Quiet(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def test_failed_send_is_retried_at_the_other_site(register: Register, broker: RunningBroker) -> None:
    with register.sender() as sender:
        sender.send_messages(ServiceBusMessage("a"))
        register.point_to(endpoint("west"))
        broker.faults("west").go_down()
        with pytest.raises((ServiceBusError, OSError)):
            sender.send_messages(ServiceBusMessage("lost on nobody"), timeout=1)
        # The operator switches while a send is on its way: the source is asked again when it has failed.
        register.watched.pin()
        register.point_to(endpoint("east"))
        message = ServiceBusMessage("b")
        sender.send_messages(message, timeout=1)
        assert message.message_id is not None
        assert sender.endpoint == endpoint("east")
    broker.faults("west").come_up()
    assert held(broker) == [1, 1]


def test_unacknowledged_message_has_the_same_id_at_the_other_site(register: Register, broker: RunningBroker) -> None:
    with register.sender() as sender:
        sender.send_messages(ServiceBusMessage("a", message_id="a"))
        register.watched.pin()
        register.point_to(endpoint("east"))
        strike = Fault(
            effect=Effect.DROP_CONNECTION, entity="orders", operations=frozenset((Operation.SEND,)), takes_effect=True
        )
        broker.faults("west").add(strike)
        sender.send_messages(ServiceBusMessage("b"), timeout=2)
    west, east = ids(broker, "west"), ids(broker, "east")
    assert len(east) == 1
    assert set(west[1:]) == set(east)


def test_error_of_the_entity_does_not_move_the_sender(register: Register, broker: RunningBroker) -> None:
    with register.sender() as sender:
        sender.send_messages(ServiceBusMessage("a"))
        broker.faults("west").add(Fault(effect=Effect.FILL, operations=frozenset((Operation.SEND,))))
        with pytest.raises(ServiceBusQuotaExceededError):
            sender.send_messages(ServiceBusMessage("b"))
    assert register.watched.consultations == 0


def test_sends_of_many_threads_all_arrive_while_the_sender_moves(register: Register, broker: RunningBroker) -> None:
    with register.sender() as sender, ThreadPoolExecutor(4) as threads:

        def send(number: int) -> None:
            if number == 20:
                register.point_to(endpoint("east"))
            sender.send_messages(ServiceBusMessage("x", message_id=str(number)))

        list(threads.map(send, range(40)))
    west, east = held(broker)
    assert west + east == 40
    assert west >= 17
    assert east >= 17


def test_receiver_settles_at_the_old_site_before_it_moves(register: Register, broker: RunningBroker) -> None:
    put(broker, "west", "a", "b", "c")
    put(broker, "east", "d")
    with register.receiver() as receiver:
        first, second = receiver.receive_messages(2, max_wait_time=5)
        register.point_to(endpoint("east"))
        assert receiver.receive_messages(2, max_wait_time=0.05) == []
        assert receiver.endpoint == endpoint("west")
        receiver.complete_message(first)
        worker = threading.Timer(0.1, receiver.complete_message, [second])
        worker.start()
        (other,) = receiver.receive_messages(2, max_wait_time=5)
        worker.join()
        assert str(other) == "d"
        receiver.complete_message(other)
        assert receiver.endpoint == endpoint("east")
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(second)
    assert held(broker) == [1, 0]


def test_a_receiver_leaves_unsettled_messages_behind(
    register: Register, broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    put(broker, "west", "a", "b")
    with register.receiver(drain_seconds=0.1) as receiver:
        kept, _ = receiver.receive_messages(2, max_wait_time=5)
        put(broker, "east", "c")
        register.point_to(endpoint("east"))
        (other,) = receiver.receive_messages(1, max_wait_time=5)
        assert str(other) == "c"
        with pytest.raises(MessageLockLostError, match="its link was closed"):
            receiver.complete_message(kept)
        receiver.abandon_message(other)
    assert "west.servicebus.windows.net:5671: 2 messages were not settled" in caplog.text
    broker.faults("west").expire_locks("orders")
    assert held(broker) == [2, 1]


def test_receiver_of_an_unavailable_site_follows_the_source(register: Register, broker: RunningBroker) -> None:
    put(broker, "west", "a")
    put(broker, "east", "b")
    with register.receiver() as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=5)
        broker.faults("west").go_down()
        register.point_to(endpoint("east"))
        with pytest.raises((ServiceBusError, OSError, ValueError)):
            receiver.complete_message(message)
        (other,) = receiver.receive_messages(1, max_wait_time=10)
        assert str(other) == "b"
        receiver.complete_message(other)
    broker.faults("west").come_up()
    broker.faults("west").expire_locks("orders")
    assert held(broker) == [1, 0]


def test_receive_and_delete_does_not_delay_a_move(register: Register, broker: RunningBroker) -> None:
    put(broker, "west", "a")
    put(broker, "east", "b")
    with register.receiver(receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        assert [str(each) for each in receiver.receive_messages(1, max_wait_time=5)] == ["a"]
        register.point_to(endpoint("east"))
        assert [str(each) for each in receiver.receive_messages(1, max_wait_time=5)] == ["b"]


def test_sessions_are_received_one_after_the_other_at_the_new_site(register: Register, broker: RunningBroker) -> None:
    put(broker, "west", "a", queue="sessions", session="one")
    put(broker, "east", "c", queue="sessions", session="three")
    with register.receiver("sessions", session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1) as receiver:
        taken = []
        for site in ("west", "east"):
            register.point_to(endpoint(site))
            (message,) = receiver.receive_messages(5, max_wait_time=5)
            assert receiver.session is not None
            taken.append((receiver.session.session_id, str(message)))
            receiver.complete_message(message)
            receiver.release()
        assert taken == [("one", "a"), ("three", "c")]
        with pytest.raises(OperationTimeoutError):
            receiver.receive_messages(5, max_wait_time=1)


def test_asyncio_behaves_the_same(register: Register, broker: RunningBroker) -> None:
    async def main() -> None:
        def connect(to: Any) -> Any:
            return register.connect(to, AsyncClient)

        watch = register.watch(AsyncWatch)
        sender = AsyncSender(watch, connect, lambda client: client.get_queue_sender("orders"))
        receiver = AsyncReceiver(watch, connect, lambda client: client.get_queue_receiver("orders"), drain_seconds=20)
        async with sender, receiver:
            await asyncio.gather(*(sender.send_messages(ServiceBusMessage(str(n))) for n in range(5)))
            first, second = await receiver.receive_messages(2, max_wait_time=5)
            register.point_to(endpoint("east"))
            batch = await sender.create_message_batch()
            batch.add_message(ServiceBusMessage("5"))
            await sender.send_messages(batch)
            assert await receiver.receive_messages(2, max_wait_time=0.05) == []
            taking = asyncio.create_task(receiver.receive_messages(2, max_wait_time=5))
            await receiver.complete_message(first)
            await receiver.dead_letter_message(second, "why", "because")
            (other,) = await taking
            assert str(other) == "5"
            broker.faults("east").go_down()
            with pytest.raises((ServiceBusError, OSError, ValueError)):
                await receiver.complete_message(other)
            register.point_to(endpoint("west"))
            await sender.send_messages(ServiceBusMessage("6"))
            (third,) = await receiver.receive_messages(1, max_wait_time=5)
            await receiver.complete_message(third)
            with pytest.raises(MessageLockLostError):
                await receiver.complete_message(other)
        broker.faults("east").come_up()

    asyncio.run(main())
    broker.faults("east").expire_locks("orders")
    assert held(broker) == [3, 1]
    assert broker.counts("west")["orders"].dead_lettered == 1


def test_asyncio_is_not_blocked_by_a_silent_peer(
    register: Register, broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(port: Any) -> Any:
        def connect(to: Any) -> Any:
            if to == endpoint("west"):
                return register.connect(to, AsyncClient)
            text = f"Endpoint=sb://localhost:{port};SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true"
            return AsyncClient.from_connection_string(text, retry_total=0)

        watch = register.watch(AsyncWatch)
        async with AsyncSender(
            watch, connect, lambda client: client.get_queue_sender("orders"), open_seconds=1.5
        ) as sender:
            await sender.send_messages(ServiceBusMessage("a"))
            register.point_to(endpoint("silent"))
            sent = 1
            while f"{endpoint('silent')} cannot be opened: TimeoutError" not in caplog.text:
                await sender.send_messages(ServiceBusMessage("b"))
                sent += 1
            return sent

    with socket.create_server(("127.0.0.1", 0)) as silent:
        sent = asyncio.run(main(silent.getsockname()[1]))
    assert sent > 3
    assert held(broker) == [sent, 0]


def test_dns_alias_moves_sender_and_receiver(register: Register, broker: RunningBroker) -> None:
    def connect(to: Any) -> Any:
        return register.connect(Endpoint(to.namespace.replace("-example", ""), to.port))

    with NameServer() as server:
        ticks = iter(range(0, 10**9, 400))
        source = DnsSource("servicebus.example.test", nameservers=["127.0.0.1"], port=server.port, timeout_seconds=1)
        watch = EndpointWatch(source, monotonic=lambda: float(next(ticks)))
        sender = FollowingSender(watch, connect, lambda client: client.get_queue_sender("orders"))
        receiver = FollowingReceiver(watch, connect, lambda client: client.get_queue_receiver("orders"))
        with sender, receiver:
            for site in ("west", "east"):
                server.replace("20 CNAME west", f"20 CNAME {site}")
                sender.send_messages(ServiceBusMessage(site))
                (message,) = receiver.receive_messages(1, max_wait_time=5)
                assert (str(message), receiver.endpoint) == (site, Endpoint(f"{site}-example.{DOMAIN}"))
                receiver.complete_message(message)
                server.is_silent = site == "west"
                sender.send_messages(ServiceBusMessage("while nobody answers"))
                assert sender.endpoint == receiver.endpoint
                server.is_silent = False
    assert held(broker) == [1, 1]
