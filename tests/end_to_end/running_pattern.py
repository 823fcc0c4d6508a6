"""A pattern of config/examples on the local broker, with its tasks in a host; what applications do, SDK clients do."""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiver

from busway_broker.config import NamespaceConfig
from busway_broker.config_file import load_config
from busway_broker.server import BrokerServer
from cli.entities import beside
from shared.clock import Clock
from shared.tasks.files import Configuration, load
from tests.end_to_end.host_process import ROOT
from tests.site import Site

EXAMPLES = ROOT / "config/examples"
ORDERS = "orders/Subscriptions/application"


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


class RunningPattern(Site):
    """
    The site and the host of a configuration folder, from its own files; *changed* changes each namespace before.

    What the site writes itself is in *scratch*.
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
        sites = [changed(config) for config in namespaces_of(folder)]
        super().__init__(scratch, sites, clock=clock, settings={"BUSWAY_CONFIG": str(folder)})

    def __enter__(self) -> Self:
        super().__enter__()
        # Before threads ask for them.
        for alias, connection in self.configuration.connections.items():
            if connection.kind == "service-bus":
                self.client(alias)
        self.app = self._stack.enter_context(self.host())
        self.app.wait_until_ready()
        return self

    def take_from(self, receiver: ServiceBusReceiver, count: int) -> list[ServiceBusReceivedMessage]:
        """Take *count* messages from a receiver that is open already, and complete them."""
        taken: list[ServiceBusReceivedMessage] = []
        while len(taken) < count:
            more = receiver.receive_messages(count - len(taken), max_wait_time=20)
            assert more, f"{receiver.entity_path}: {len(taken)} of {count} came\n{self.app.log()[-3000:]}"
            for message in more:
                receiver.complete_message(message)
            taken += more
        return taken

    @contextlib.contextmanager
    def host_away(self) -> Iterator[None]:
        """Stop the host, and start another when the context ends."""
        assert self.app.stop() == 0
        self.app.__exit__()
        yield
        self.app.__enter__()
        self.app.wait_until_ready()

    def at_once[T](self, *calls: Callable[[], T]) -> list[T]:
        """Return what *calls* return, made side by side: opening and closing a link takes the SDK a second."""
        with ThreadPoolExecutor(len(calls)) as threads:
            return [future.result() for future in [threads.submit(call) for call in calls]]

    def wait_until_drained(self) -> None:
        """Wait until no source of a task holds a message, all namespaces seen at one moment."""
        sources = [
            (task.source.connection, task.source.entity) for task in self.configuration.tasks if task.source.hub is None
        ]

        async def left(server: BrokerServer) -> int:
            counts = {site: server.namespaces[site].counts() for site, _ in sources}
            return sum(counts[site][entity].active for site, entity in sources)

        # A source is settled after its target has accepted, so a message on its way is always at one of them.
        self.app.wait_for(lambda: self.broker.run(left) == 0)

    def journal(self) -> list[dict[str, Any]]:
        """Return the journal's lines so far: the messages that were not sent, and why."""
        marker = " busway.journal: "
        lines = self.app.log().splitlines()
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
