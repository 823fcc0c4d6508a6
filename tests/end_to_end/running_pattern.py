"""A pattern of config/examples on the local broker, with its tasks in a host; what applications do, SDK clients do."""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiver

from busway_broker.config import NamespaceConfig
from busway_broker.config_file import load_config
from busway_broker.server import BrokerServer
from busway_broker.thread import RunningBroker
from cli.entities import beside
from shared.clock import Clock
from shared.tasks.files import Configuration, load
from tests.end_to_end.host_process import ROOT, HostProcess

EXAMPLES = ROOT / "config/examples"


def namespaces_of(folder: Path) -> list[NamespaceConfig]:
    """Return what `entities/` says, the namespaces under the names of their connections."""
    return [replace(namespace, name=path.stem) for path in beside(folder) for namespace in load_config([path])]


def forgetful(namespace: NamespaceConfig) -> NamespaceConfig:
    """Return *namespace* without duplicate detection, so that a message that comes twice is seen twice."""
    return replace(
        namespace,
        queues=tuple(replace(queue, requires_duplicate_detection=False) for queue in namespace.queues),
        topics=tuple(replace(topic, requires_duplicate_detection=False) for topic in namespace.topics),
    )


class RunningPattern:
    """
    The broker and the host of a configuration folder, from its own files, and the clients of its applications.

    *changed* changes each namespace before it starts.
    """

    def __init__(
        self,
        folder: Path,
        scratch: Path,
        *,
        changed: Callable[[NamespaceConfig], NamespaceConfig] = forgetful,
        clock: Clock | None = None,
    ) -> None:
        self.configuration: Configuration = load(folder)
        self.broker = RunningBroker([changed(config) for config in namespaces_of(folder)], clock)
        self._folder = folder
        self._scratch = scratch
        self._ends = contextlib.ExitStack()
        self._clients: dict[str, ServiceBusClient] = {}

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as ends:
            ends.enter_context(self.broker)
            strings = {alias: self.broker.connection_string(alias) for alias in self.configuration.connections}
            settings = {self.configuration.connections[alias].key: text for alias, text in strings.items()}
            settings["BUSWAY_CONFIG"] = str(self._folder)
            self.host = ends.enter_context(HostProcess(str(ROOT), self._scratch, settings))
            for alias, connection in self.configuration.connections.items():
                if connection.kind == "service-bus":
                    client = ServiceBusClient.from_connection_string(strings[alias])
                    self._clients[alias] = ends.enter_context(client)
            self.host.wait_until_ready()
            self._ends = ends.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    # What applications do

    def send(self, site: str, entity: str, messages: Sequence[ServiceBusMessage]) -> None:
        """Send to a queue or topic of a site."""
        with self._clients[site].get_queue_sender(entity) as sender:
            sender.send_messages(list(messages))

    def receiver(self, site: str, path: str, session: str | None = None, **options: Any) -> ServiceBusReceiver:
        """Return a receiver of a queue, or of TOPIC/SUBSCRIPTION."""
        if session is not None:
            options["session_id"] = session
        topic, _, subscription = path.partition("/")
        if subscription:
            return self._clients[site].get_subscription_receiver(topic, subscription, **options)
        return self._clients[site].get_queue_receiver(path, **options)

    def take(
        self, site: str, path: str, count: int, session: str | None = None, seconds: float = 20
    ) -> list[ServiceBusReceivedMessage]:
        """Take *count* messages that are there or come within *seconds*, and complete them."""
        with self.receiver(site, path, session) as receiver:
            return self.take_from(receiver, count, seconds)

    def take_from(
        self, receiver: ServiceBusReceiver, count: int, seconds: float = 20
    ) -> list[ServiceBusReceivedMessage]:
        """Take as `take` does, from a receiver that is open already."""
        taken: list[ServiceBusReceivedMessage] = []
        while len(taken) < count:
            more = receiver.receive_messages(count - len(taken), max_wait_time=seconds)
            assert more, f"{receiver.entity_path}: {len(taken)} of {count} came\n{self.host.log()[-3000:]}"
            for message in more:
                receiver.complete_message(message)
            taken += more
        return taken

    @contextlib.contextmanager
    def host_away(self) -> Iterator[None]:
        """Stop the host, and start another when the context ends."""
        assert self.host.stop() == 0
        self.host.__exit__()
        yield
        self.host.__enter__()
        self.host.wait_until_ready()

    def at_once[T](self, *calls: Callable[[], T]) -> list[T]:
        """Return what *calls* return, made side by side: opening and closing a link takes the SDK a second."""
        with ThreadPoolExecutor(len(calls)) as threads:
            return [future.result() for future in [threads.submit(call) for call in calls]]

    # What is so

    def active(self, site: str, path: str) -> int:
        """Return how many messages a queue, or TOPIC/SUBSCRIPTION, holds."""
        return self.broker.counts(site)[path.replace("/", "/Subscriptions/")].active

    def wait_until_drained(self) -> None:
        """Wait until no source of a task holds a message, all namespaces seen at one moment."""
        sources = [
            (task.source.connection, task.source.entity) for task in self.configuration.tasks if task.source.hub is None
        ]

        async def left(server: BrokerServer) -> int:
            counts = {site: server.namespaces[site].counts() for site, _ in sources}
            return sum(counts[site][entity].active for site, entity in sources)

        # A source is settled after its target has accepted, so a message on its way is always at one of them.
        self.host.wait_for(lambda: self.broker.run(left) == 0)

    def journal(self) -> list[dict[str, Any]]:
        """Return the journal's lines so far: the messages that were not sent, and why."""
        marker = " busway.journal: "
        lines = self.host.log().splitlines()
        return [json.loads(line.split(marker, 1)[1]) for line in lines if marker in line]

    def looped(self) -> list[tuple[str, str]]:
        """Return task and message id of each message that the guard stopped."""
        return [(line["task"], line["message_id"]) for line in self.journal() if line["outcome"] == "looped"]


def stamps(message: ServiceBusReceivedMessage) -> dict[str, str]:
    """Return what Busway has noted on a message."""
    named = [(_text(key), _text(value)) for key, value in (message.application_properties or {}).items()]
    return {key: value for key, value in named if key.startswith("repl-")}


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def orders(site: str, count: int, session: str = "s") -> list[ServiceBusMessage]:
    """Return messages with ids that tell the site and the order in which they were sent."""
    return [ServiceBusMessage(f"{site}-{n}", message_id=f"{site}-{n}", session_id=session) for n in range(count)]


def copied(folder: Path, to: Path) -> Path:
    """Copy a configuration folder, to be changed by a test."""
    return Path(shutil.copytree(folder, to))


def lines(messages: Sequence[ServiceBusReceivedMessage], prefix: str = "") -> Iterator[str]:
    """Yield the bodies of those messages whose body begins with *prefix*, in their order."""
    yield from (text for text in map(str, messages) if text.startswith(prefix))
