"""The entities to move, each with the one that it moves to, and what keeps an entity from being moved."""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus.management import (
    EntityStatus,
    QueueProperties,
    ServiceBusAdministrationClient,
    SubscriptionProperties,
    TopicProperties,
)

from cli.evacuation.pauses import Pause, Pauses
from cli.output import waits_for
from cli.topology.sites import open_client
from shared.ends.service_bus.administration import queue_or_topic, translating
from shared.errors import ConfigError, Problem
from shared.resend.places import Destination, Place, check_end, namespaces, place_at
from shared.tasks.files import Configuration

SUBSCRIPTIONS = "/Subscriptions/"
# After that time the counts of the administration, which lag, have what was there at the start.
_COUNTS_SECONDS = 3.0

type _Found = QueueProperties | SubscriptionProperties | TopicProperties


@dataclass
class Pair:
    """An entity, and the one that its messages move to."""

    source: Place
    target: Place
    """Where the copies are: the queue, the subscription, or for scheduled messages the topic."""
    destination: Destination
    """What they are sent to: the queue or the topic."""
    requires_session: bool = False
    is_topic: bool = False
    """A topic itself has only scheduled messages."""
    drops_duplicates: bool = False
    """Whether the target drops a message with the id of one that it has seen."""
    max_delivery_count: int = 10
    """Of the target."""
    max_message_size: int | None = None
    """Of the target in bytes, if that is known."""
    forwards: bool = False
    """Whether the source forwards its messages, and so shows none."""
    forwards_dead_letters: bool = False
    """Whether the source forwards its dead letters, which nobody can receive then."""
    target_is_partitioned: bool = False
    """Whether the numbers of the target show nothing of what entered it: each partition has its own."""
    target_forwards: bool = False
    """Whether the target forwards: nothing can be looked for or set aside there."""
    unseen: list[str] = field(default_factory=list)
    """Messages that stay because they cannot be seen."""
    problems: list[str] = field(default_factory=list)
    """Why it cannot be moved."""
    pause: Pause | None = None
    """Of the task that takes from the source."""

    @property
    def is_gated(self) -> bool:
        """Whether the copies are for one subscription of a topic; see `cli.evacuation.gate`."""
        return SUBSCRIPTIONS in self.target.entity

    def __str__(self) -> str:
        return f"{self.source} → {self.target}"


def pairs_of(source: str, target: str, configuration: Configuration, pauses: Pauses) -> list[Pair]:
    """Return what CONNECTION or CONNECTION/ENTITY in *source* and *target* name; raises BuswayError."""
    start = time.monotonic()
    source_alias, _, path = source.partition("/")
    target_alias, _, other = target.partition("/")
    for text, alias in ((source, source_alias), (f"--to {target}", target_alias)):
        check_end(text)
        if alias not in namespaces(configuration):
            expected = ", ".join(f"{each} or {each}/ENTITY" for each in namespaces(configuration))
            hint = f"expected {expected or 'a connection of kind service-bus with a setting'}"
            raise ConfigError([Problem(text, "is not a namespace of Service Bus", hint)])
    waits_for(f"{source_alias} and {target_alias}")
    with (
        open_client(source_alias, configuration.connections[source_alias]) as source_client,
        open_client(target_alias, configuration.connections[target_alias]) as target_client,
    ):
        ends = _End(source_alias, source_client, configuration), _End(target_alias, target_client, configuration)
        found = list(ends[0].entities(path))
        if not found:
            hint = "expected a queue, a topic, or TOPIC/Subscriptions/NAME; a hub keeps its events: busway replay"
            raise ConfigError([Problem(source, "is not an entity of this namespace", hint)])
        if other and len(found) > 1:
            raise ConfigError([Problem(f"--to {target}", "names one entity for several", f"expected {target_alias}")])
        made = [_pair(each, other or None, *ends, pauses) for each in found]
        forwarding = [pair for pair in made if pair.forwards and not pair.problems]
        if forwarding:
            time.sleep(max(0.0, start + _COUNTS_SECONDS - time.monotonic()))
        for pair in forwarding:
            pair.unseen += ends[0].unseen(pair.source.entity)
        return made


class _End:
    """One of the two namespaces."""

    def __init__(self, alias: str, client: ServiceBusAdministrationClient, configuration: Configuration) -> None:
        self.alias = alias
        self.site = configuration.site(alias)
        self.configuration = configuration
        self._client = client

    def place(self, entity: str) -> Place:
        return place_at(self.alias, entity, self.configuration)

    def entities(self, path: str) -> Iterator[tuple[str, _Found]]:
        """Yield the entities at *path*, of a topic also its subscriptions, of no path all."""
        with translating(self.alias):
            if not path:
                for queue in self._client.list_queues():
                    yield queue.name, queue
                for topic in self._client.list_topics():
                    yield from self._topic(topic)
                return
            found = self.entity(path)
            if isinstance(found, TopicProperties):
                yield from self._topic(found)
            elif found is not None:
                yield path, found

    def entity(self, path: str) -> _Found | None:
        """Return a queue, topic or subscription; None if it does not exist."""
        topic, is_subscription, name = _split(path)
        with translating(f"{self.alias}/{path}"), contextlib.suppress(ResourceNotFoundError):
            return self._client.get_subscription(topic, name) if is_subscription else queue_or_topic(self._client, path)
        return None

    def unseen(self, path: str) -> Iterator[str]:
        """Yield what an entity that forwards still has, which only its counts show."""
        topic, is_subscription, name = _split(path)
        with translating(f"{self.alias}/{path}"):
            found = (
                self._client.get_subscription_runtime_properties(topic, name)
                if is_subscription
                else self._client.get_queue_runtime_properties(path)
            )
        waiting = found.active_message_count or 0
        if waiting > 0:
            yield f"{waiting:,} messages wait until what it forwards to has room; nothing can read them here"
        scheduled = getattr(found, "scheduled_message_count", 0) or 0
        if scheduled > 0:
            yield f"{scheduled:,} scheduled messages cannot be seen; it forwards them when they are due"

    def _topic(self, topic: TopicProperties) -> Iterator[tuple[str, _Found]]:
        yield topic.name, topic
        for subscription in self._client.list_subscriptions(topic.name):
            yield f"{topic.name}{SUBSCRIPTIONS}{subscription.name}", subscription


def _pair(found: tuple[str, _Found], other: str | None, source: _End, target: _End, pauses: Pauses) -> Pair:
    path, properties = found
    wanted = other or path
    topic, is_subscription, name = _split(wanted)
    place = target.place(f"{topic}{SUBSCRIPTIONS}{name}" if is_subscription else wanted)
    pair = Pair(
        source.place(path),
        place,
        Destination(target.alias, target.site, topic if is_subscription else wanted),
        requires_session=not isinstance(properties, TopicProperties) and bool(properties.requires_session),
        is_topic=isinstance(properties, TopicProperties),
    )
    pair.pause = pauses.get((pair.source.site, pair.source.entity.lower()))
    there = target.entity(wanted)
    if there is None:
        pair.problems.append(f"{place} does not exist: create it, for example with busway apply")
        return pair
    takes = target.entity(topic) if is_subscription else there
    pair.drops_duplicates = bool(_of(takes, "requires_duplicate_detection"))
    pair.target_is_partitioned = bool(_of(takes, "enable_partitioning"))
    if not isinstance(there, TopicProperties):
        pair.max_delivery_count = there.max_delivery_count or pair.max_delivery_count
    kilobytes = _of(takes, "max_message_size_in_kilobytes")
    pair.max_message_size = kilobytes * 1024 if isinstance(kilobytes, int) else None
    pair.forwards = bool(_of(properties, "forward_to"))
    pair.forwards_dead_letters = bool(_of(properties, "forward_dead_lettered_messages_to"))
    pair.target_forwards = bool(_of(there, "forward_to"))
    pair.problems += dict.fromkeys(_problems(pair, properties, there, takes))
    return pair


def _problems(pair: Pair, source: _Found, target: _Found, takes: _Found | None) -> Iterator[str]:
    if str(pair.source).lower() == str(pair.target).lower():
        yield "is the same entity"
    if isinstance(target, TopicProperties) != pair.is_topic:
        yield f"{pair.target} is of another kind: expected a queue or a subscription, or for a topic a topic"
        return
    if not pair.is_topic and bool(_of(target, "requires_session")) != pair.requires_session:
        ends = (pair.source, pair.target) if pair.requires_session else (pair.target, pair.source)
        yield f"{ends[0]} requires sessions, {ends[1]} does not"
    for end, status, closed in (
        (pair.source, _of(source, "status"), (EntityStatus.RECEIVE_DISABLED, EntityStatus.DISABLED)),
        (pair.target, _of(target, "status"), (EntityStatus.RECEIVE_DISABLED, EntityStatus.DISABLED)),
        (pair.destination, _of(takes, "status"), (EntityStatus.SEND_DISABLED, EntityStatus.DISABLED)),
    ):
        is_paused = end is pair.source and pair.pause is not None and pair.pause.explains(_text(status))
        if status in closed and not is_paused:
            yield f"{end} has the status {_text(status)}, expected Active"


def _text(status: object) -> str:
    return str(getattr(status, "value", status))


def _of(properties: _Found | None, name: str) -> object:
    return getattr(properties, name, None)


def _split(path: str) -> tuple[str, bool, str]:
    """Return topic and subscription of a path, if it is that of a subscription."""
    at = path.lower().find(SUBSCRIPTIONS.lower())
    return (path, False, "") if at < 0 else (path[:at], True, path[at + len(SUBSCRIPTIONS) :])
