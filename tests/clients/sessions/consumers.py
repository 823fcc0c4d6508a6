"""Consumers at two namespaces, and what their application has done."""

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

from busway_broker.thread import RunningBroker
from busway_clients.sessions import Journal, JournaledConsumer, Lease, Settings

QUICK: dict[str, Any] = {"poll_seconds": 0.05, "idle_seconds": 0.2, "retry_seconds": 0.01, "accept_seconds": 0.3}


SETTINGS = Settings(**QUICK)


SECONDS = 30


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

    def async_client(self, site: str) -> AsyncServiceBusClient:
        return AsyncServiceBusClient.from_connection_string(self.broker.connection_string(site), retry_total=0)

    def active(self, queue: str) -> dict[str, int]:
        return {site: self.broker.counts(site)[queue].active for site in ("west", "east")}

    def send(
        self, queue: str, ids: Iterable[str], session: str | None = None, sites: Iterable[str] = ("west", "east")
    ) -> None:
        """Send messages with these ids, each session's in order."""
        for site in sites:
            with self.clients[site].get_queue_sender(queue) as sender:
                sender.send_messages([ServiceBusMessage(name, message_id=name, session_id=session) for name in ids])


@contextlib.contextmanager
def consumers(
    clients: dict[str, ServiceBusClient], source: Any, store: Any, effects: Any, **options: Any
) -> Iterator[Any]:
    with contextlib.ExitStack() as ends:
        made = []
        for site, client in clients.items():
            settings = options.get(site, options.get("settings", SETTINGS))
            consumer = JournaledConsumer(client, source, store, effects, site=site, settings=settings, lanes=2)
            made.append(ends.enter_context(consumer))
        yield made


class Closing:
    def __init__(self, store: Any) -> None:
        self.store = store

    async def aclose(self) -> None:
        await self.store.close()
