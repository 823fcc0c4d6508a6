"""Namespaces of the local broker, an app from YAML texts, and what applications and operators do with them."""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import yaml
from azure.eventhub import EventData, EventHubProducerClient
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode, ServiceBusReceiver
from azure.servicebus.management import ServiceBusAdministrationClient
from typer.testing import CliRunner, Result

from busway import PACKAGES
from busway_broker.admin.thread import RunningAdmin
from busway_broker.config import EntityStatus, HubConfig, NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.core.content import read_content
from busway_broker.core.namespace import Namespace
from busway_broker.thread import RunningBroker
from cli.main import app
from shared.clock import Clock
from shared.ends.service_bus.administration import administration_client
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.rules import Rule, parse_action, parse_filter
from tests.end_to_end.host_process import ROOT, HostProcess

_SECONDS = 60.0
_TAKE_SECONDS = 20
_JOURNAL = "blob: {setting: AzureWebJobsStorage, container: journal}\n"


def until(condition: Callable[[], object], seconds: float = _SECONDS, *, text: Callable[[], object] = str) -> None:
    """Wait until *condition* holds; fail with *text* if it does not."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"did not happen within {seconds} s: {text()}"
        time.sleep(0.05)


def namespaces(text: str) -> list[NamespaceConfig]:
    """
    Read the entities of namespaces: `west: {queues: {orders: {lock_duration: 5}, jobs: }, hubs: [telemetry]}`.

    The options are those of the broker's configuration, durations in seconds. A topic has subscriptions, alone in a
    list or among its options, and a subscription may have one rule with a filter and an action.
    """
    return [_namespace(name, given or {}) for name, given in yaml.safe_load(text).items()]


def _namespace(name: str, given: dict[str, Any]) -> NamespaceConfig:
    queues, topics, hubs = (given.pop(kind, ()) for kind in ("queues", "topics", "hubs"))
    return NamespaceConfig(
        name=name,
        queues=tuple(QueueConfig(name=each, **_options(options)) for each, options in _named(queues)),
        topics=tuple(_topic(each, options) for each, options in _named(topics)),
        hubs=tuple(HubConfig(name=each, **_options(options)) for each, options in _named(hubs)),
        **given,
    )


def _topic(name: str, given: Any) -> TopicConfig:
    options = given if isinstance(given, dict) else {"subscriptions": given or ()}
    subscriptions = tuple(_subscription(each, one) for each, one in _named(options.pop("subscriptions", ())))
    return TopicConfig(name=name, subscriptions=subscriptions, **_options(options))


def _subscription(name: str, options: dict[str, Any] | None) -> SubscriptionConfig:
    rule = (options or {}).pop("rule", None)
    found = SubscriptionConfig(name=name, **_options(options))
    if rule is None:
        return found
    action = parse_action(rule["action"]) if "action" in rule else None
    return replace(found, rules=(Rule("rule", parse_filter(rule["filter"]), action),))


def _options(given: dict[str, Any] | None) -> dict[str, Any]:
    found = dict(given or {})
    for name, value in found.items():
        if name.endswith(("_duration", "_live", "_window", "_retention")):
            found[name] = timedelta(seconds=value)
        elif name == "status":
            found[name] = EntityStatus(value)
        elif isinstance(value, list):
            found[name] = tuple(value)
    return found


def _named(entities: Any) -> Iterable[tuple[str, Any]]:
    return entities.items() if isinstance(entities, dict) else [(name, None) for name in entities]


def connections(configs: Sequence[NamespaceConfig]) -> dict[str, Any]:
    """Return a connection for each namespace, named after it; for its hubs beside queues, `hub-` and its name."""
    found: dict[str, Any] = {}
    for config in configs:
        has_bus = bool(config.queues or config.topics or not config.hubs)
        if has_bus:
            found[config.name] = {"kind": "service-bus", "setting": config.name.upper()}
        if config.hubs:
            found[f"hub-{config.name}" if has_bus else config.name] = {
                "kind": "event-hubs",
                "setting": config.name.upper(),
            }
    return found


class Site:
    """
    Namespaces, and a folder with the configuration of an app; all stops with its context.

    *more* are further connections in YAML, *journal* the text of `journal.yaml`. With *storage* the app has an account
    and a journal in it; *has_admin* starts the administration. The paths of entities are `west/orders`,
    `west/news/Subscriptions/app`.
    """

    def __init__(
        self,
        folder: Path,
        entities: str | Sequence[NamespaceConfig],
        tasks: str = "",
        *,
        more: str = "",
        storage: str = "",
        journal: str = "",
        has_admin: bool = False,
        clock: Clock | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.namespaces = namespaces(entities) if isinstance(entities, str) else list(entities)
        self.folder = folder
        self.broker = RunningBroker(self.namespaces, clock)
        self.configure(tasks, connections(self.namespaces) | (yaml.safe_load(more) or {}))
        if storage or journal:
            (folder / "journal.yaml").write_text(journal or _JOURNAL)
        self.settings = {"BUSWAY_CONFIG": str(folder), "COLUMNS": "80", **(settings or {})}
        if storage:
            self.settings["AzureWebJobsStorage"] = storage
        self.admin: RunningAdmin | None = RunningAdmin(self.broker) if has_admin else None
        self._stack = ExitStack()
        self._clients: dict[str, ServiceBusClient] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(self.broker)
            for namespace in self.namespaces:
                self.settings[namespace.name.upper()] = self.broker.connection_string(namespace.name)
            if self.admin is not None:
                stack.enter_context(self.admin)
                for namespace in self.namespaces:
                    self.settings[f"{namespace.name.upper()}__administration"] = self.admin.address(namespace.name)
            stack.callback(self._close_clients)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _close_clients(self) -> None:
        for client in self._clients.values():
            client.close()

    def configure(self, tasks: str, aliases: Mapping[str, Any] | None = None) -> None:
        """Write the task files, as one, and the connections if given."""
        (self.folder / "tasks").mkdir(parents=True, exist_ok=True)
        (self.folder / "tasks" / "all.yaml").write_text(tasks)
        if aliases is not None:
            (self.folder / "connections.yaml").write_text(json.dumps(aliases))

    # The app and the command

    def host(self, *arguments: str, **settings: str) -> HostProcess:
        """Return a host of the app, which its context starts."""
        return HostProcess(str(ROOT), self.folder, {**self.settings, **settings}, *arguments)

    @contextlib.contextmanager
    def running_host(self, *arguments: str, **settings: str) -> Iterator[HostProcess]:
        """Run a host that is ready, and stop it."""
        with self.host(*arguments, **settings) as host:
            host.wait_until_ready()
            yield host
            log = host.log()
            assert host.stop(30) == 0, log

    def run(self, *arguments: str, **settings: str) -> Result:
        """Run the command in this process, which takes a tenth of the time of a new one."""
        with contextlib.chdir(self.folder):
            result = CliRunner().invoke(app, list(arguments), env={**self.settings, **settings})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def statuses(
        self, is_reached: Callable[[dict[str, dict[str, Any]]], bool] = bool, code: int | None = None
    ) -> dict[str, dict[str, Any]]:
        """Return what `busway status` reports of each task, once that and its exit code are as expected."""
        end = time.monotonic() + 60
        while True:
            result = self.run("status", "--json")
            tasks = {each["task"]: each for each in json.loads(result.stdout)["tasks"]}
            if is_reached(tasks) and code in (None, result.exit_code):
                return tasks
            assert time.monotonic() < end, tasks
            time.sleep(1)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start the command as a process of its own."""
        return subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "cli", *arguments],
            env={**os.environ, **self.settings, "PYTHONPATH": PACKAGES},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    # What applications do

    def client(self, site: str) -> ServiceBusClient:
        """Return the client of a namespace."""
        if site not in self._clients:
            self._clients[site] = ServiceBusClient.from_connection_string(self.broker.connection_string(site))
        return self._clients[site]

    def send(self, path: str, *messages: ServiceBusMessage | str) -> None:
        """Send to a queue or topic in one batch."""
        site, _, entity = path.partition("/")
        is_topic = any(topic.name == entity for one in self.namespaces if one.name == site for topic in one.topics)
        client = self.client(site)
        with client.get_topic_sender(entity) if is_topic else client.get_queue_sender(entity) as sender:
            sender.send_messages(
                [ServiceBusMessage(message) if isinstance(message, str) else message for message in messages]
            )

    def publish_events(self, path: str, *events: EventData | str, **where: Any) -> None:
        """Send to a hub in one batch, which has a partition_id or a partition_key."""
        site, _, hub = path.partition("/")
        connection = self.broker.connection_string(site)
        with EventHubProducerClient.from_connection_string(connection, eventhub_name=hub) as producer:
            producer.send_batch([EventData(event) if isinstance(event, str) else event for event in events], **where)

    def receiver(self, path: str, **options: Any) -> ServiceBusReceiver:
        """Return a receiver of a queue or a subscription."""
        site, _, entity = path.partition("/")
        topic, _, subscription = entity.partition("/Subscriptions/")
        if subscription:
            return self.client(site).get_subscription_receiver(topic, subscription, **options)
        return self.client(site).get_queue_receiver(entity, **options)

    def take(self, path: str, count: int, **options: Any) -> list[Any]:
        """Receive and delete *count* messages; fewer are an error."""
        messages: list[Any] = []
        with self.receiver(path, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, **options) as receiver:
            while len(messages) < count:
                more = receiver.receive_messages(count - len(messages), max_wait_time=_TAKE_SECONDS)
                assert more, f"{path}: {len(messages)} of {count} arrived"
                messages += more
        return messages

    def administrator(self, site: str) -> ServiceBusAdministrationClient:
        """Return a client for the administration of a namespace; it needs *has_admin*."""
        return administration_client(site.upper(), self.settings)

    # What the broker has

    def active(self, path: str) -> int:
        """Return how many messages wait in a queue or a subscription."""
        site, _, entity = path.partition("/")
        return self.broker.counts(site)[entity].active

    def there(self, path: str) -> list[Message]:
        """Return the messages in an entity, in their order; it may be a dead-letter queue."""
        site, _, entity = path.partition("/")

        def peek(namespace: Namespace) -> list[bytes]:
            return [message.encode() for message in namespace.store(entity).peek(0)]

        return [Message.received(each, Origin(site, entity)) for each in self.broker.inspect(site, peek)]

    def events(self, path: str) -> list[list[Message]]:
        """Return the events of each partition of a hub."""
        site, _, hub = path.partition("/")

        def encoded(namespace: Namespace) -> list[list[bytes]]:
            return [[event.encode() for event in partition.events] for partition in namespace.hub(hub).partitions]

        found = self.broker.inspect(site, encoded)
        return [[Message.received(each, Origin(site, hub, str(n))) for each in part] for n, part in enumerate(found)]

    def publish(self, path: str, contents: Iterable[bytes]) -> None:
        """Put encoded messages into a queue or topic."""
        site, _, entity = path.partition("/")
        read = [read_content(content) for content in contents]
        self.broker.inspect(site, lambda each: [each.target(entity).publish(one) for one in read])
