"""Two namespaces of the local broker, a source that names one of them, and clients that follow it."""

from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway_broker.thread import RunningBroker
from busway_clients import EndpointWatch, FollowingReceiver, FollowingSender
from busway_clients.endpoints.cache import EndpointCache
from busway_clients.endpoints.endpoint import Answer, Endpoint, Offer

SITES = ("west", "east")
DOMAIN = "servicebus.windows.net"


def endpoint(site: str, port: int = 5671) -> Endpoint:
    return Endpoint(f"{site}.{DOMAIN}", port)


class FreshWatch:
    """A watch of either kind that reads its source for each caller."""

    def __init__(self, watch: Any) -> None:
        self.watch = watch

    def endpoints(self) -> Any:
        return self.watch.consult()

    def consult(self) -> Any:
        return self.watch.consult()


class PinnableWatch:
    """A watch whose answer a test can keep until it is consulted."""

    def __init__(self, watch: Any) -> None:
        self.watch = watch
        self.pinned: tuple[Endpoint, ...] | None = None
        self.consultations = 0

    def pin(self) -> None:
        self.pinned = self.watch.endpoints()

    def endpoints(self) -> tuple[Endpoint, ...]:
        found: tuple[Endpoint, ...] = self.pinned or self.watch.endpoints()
        return found

    def consult(self) -> tuple[Endpoint, ...]:
        self.consultations += 1
        found: tuple[Endpoint, ...] = self.watch.consult()
        return found


class Register:
    """A source that a test rewrites."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker
        self.wanted = [endpoint("west")]
        self.connected: list[Any] = []

    def point_to(self, *endpoints: Any) -> None:
        self.wanted = list(endpoints)

    def read(self) -> Answer:
        return Answer("site", tuple(Offer(each, index) for index, each in enumerate(self.wanted)), 0)

    def watch(self, kind: Any = EndpointWatch) -> FreshWatch:
        ticks = iter(range(0, 10**9, 400))
        return FreshWatch(kind(self, cache=EndpointCache(), monotonic=lambda: float(next(ticks))))

    def slow_watch(self, kind: Any = EndpointWatch) -> Any:
        """Return a watch whose source is due again in five minutes, at a second or two for each use."""
        return kind(self, cache=EndpointCache(shortest_seconds=300), monotonic=iter(range(0, 1000, 2)).__next__)

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
