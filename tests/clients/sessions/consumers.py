"""Consumers at two namespaces, and what their application has done."""

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

import busway_clients.aio.sessions as aio
from busway_broker.thread import RunningBroker
from busway_clients.sessions import Journal, JournaledConsumer, Lease, Settings, Source
from tests.site import until

QUICK: dict[str, Any] = {"poll_seconds": 0.05, "idle_seconds": 0.2, "retry_seconds": 0.01, "accept_seconds": 0.3}


SETTINGS = Settings(**QUICK)


SECONDS = 30
SITES = ("west", "east")


class Pause:
    """What an application does that waits, once it has begun, until a test lets it go on."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self, _: Any) -> None:
        self.begun.set()
        assert self.go_on.wait(SECONDS)


class Effects:
    """What an application has done, and when there is enough of it."""

    def __init__(self, act: Any = None) -> None:
        self.done: list[tuple[str | None, str]] = []
        self._changed = threading.Condition()
        self._act = act

    def __call__(self, delivery: Any) -> None:
        if self._act is not None:
            self._act(delivery)
        with self._changed:
            self.done.append((delivery.session_id, delivery.message_id))
            self._changed.notify_all()

    async def awaited(self, delivery: Any) -> None:
        self(delivery)

    def of(self, session: str | None) -> list[Any]:
        return [name for each, name in self.done if each == session]

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.done) >= count, SECONDS), self.done


def lease_of(journal: Journal, session: str | None) -> Lease:
    lease = journal.record(session, []).lease
    assert lease is not None
    return lease


class Regions:
    """Both namespaces with a client of each, and a queue of each kind that no other test uses."""

    def __init__(self, broker: RunningBroker, clients: dict[str, ServiceBusClient], number: int) -> None:
        self.broker = broker
        self.clients = clients
        self._number = number

    def queue(self, kind: str = "sessions") -> str:
        return f"{kind}-{self._number}"

    def source(self, kind: str = "sessions") -> Source:
        return Source(self.queue(kind), has_sessions=kind == "sessions")

    def async_client(self, site: str) -> AsyncServiceBusClient:
        return AsyncServiceBusClient.from_connection_string(self.broker.connection_string(site), retry_total=0)

    def consumer(
        self, site: str, store: Any, apply: Any, kind: str = "sessions", *, client: Any = None, **options: Any
    ) -> Any:
        """Return a consumer of the queue of a kind, or of a *source*; with a *client* of asyncio an awaited one."""
        make: Any = JournaledConsumer if client is None else aio.JournaledConsumer
        source = options.pop("source", self.source(kind))
        lanes = options.pop("lanes", 1)
        settings = Settings(**{**QUICK, "lock": "session" if kind == "sessions" else "message", **options})
        client = client or self.clients[site]
        return make(client, source, store, apply, site=site, settings=settings, lanes=lanes)

    @contextlib.contextmanager
    def consumers(self, store: Any, apply: Any, sites: Iterable[str] = SITES, **options: Any) -> Iterator[None]:
        """Let consumers of the queue with sessions run at *sites*."""
        with contextlib.ExitStack() as ends:
            for site in sites:
                ends.enter_context(self.consumer(site, store, apply, lanes=2, **options))
            yield

    def active(self, kind: str = "sessions") -> dict[str, int]:
        return {site: self.broker.counts(site)[self.queue(kind)].active for site in SITES}

    def until_empty(self, kind: str = "sessions", sites: Iterable[str] = SITES) -> None:
        until(lambda: not any(self.active(kind)[site] for site in sites))

    def send(self, ids: Iterable[str], session: str | None = None, sites: Iterable[str] = SITES) -> None:
        """Send messages with these ids in their order, to the queue with sessions if they have one."""
        messages = [ServiceBusMessage(name, message_id=name, session_id=session) for name in ids]
        for site in sites:
            with self.clients[site].get_queue_sender(self.queue("sessions" if session else "plain")) as sender:
                sender.send_messages(messages)
