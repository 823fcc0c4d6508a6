"""A namespace: its entities by address, and the forwarding between them."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from busway_broker import errors
from busway_broker.config import NamespaceConfig
from busway_broker.core.backlog import Counts
from busway_broker.core.content import Content
from busway_broker.core.entities import NO_SESSION_ID, Queue, Subscription, Topic
from busway_broker.core.entity_links import EntityLinks, IdleEntities
from busway_broker.core.home import Recorder
from busway_broker.core.hub import Hub
from busway_broker.core.properties import changed, why
from busway_broker.core.session_store import SessionStore
from busway_broker.core.store import MessageStore
from busway_broker.core.timers import Timed, Timers
from busway_broker.core.times import milliseconds
from busway_broker.core.usage import Use, check_can
from busway_broker.errors import Refusal
from busway_broker.faults import Faults
from shared.amqp.errors import NOT_ALLOWED
from shared.clock import Clock

MAX_HOPS = 4

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://[^/]*/?", re.IGNORECASE)
SUB_QUEUE = re.compile(r"(/\$transfer)?/\$deadletterqueue$", re.IGNORECASE)

type Entity = Queue | Topic | Subscription


def path_of(address: str) -> str:
    """
    Return an address without scheme and host, in lower case: names do not differ by case.

    >>> path_of("amqps://localhost:5672/Orders/$DeadLetterQueue")
    'orders/$deadletterqueue'
    """
    return without_host(address).lower()


def without_host(address: str) -> str:
    """Return an address without scheme and host."""
    return _SCHEME.sub("", address, count=1).strip("/")


def top_level(path: str) -> str:
    """
    Return the path of the queue or topic that a subscription or sub-queue belongs to, in lower case.

    >>> top_level("Prices/Subscriptions/eu/$DeadLetterQueue")
    'prices'
    """
    return SUB_QUEUE.sub("", path.lower(), count=1).partition("/subscriptions/")[0]


class Namespace:
    """The entities of one namespace and their timers."""

    def __init__(self, config: NamespaceConfig, clock: Clock, recorder: Recorder | None = None) -> None:
        """Report all changes to *recorder*, if given."""
        self.name = config.name
        self.recorder = Recorder() if recorder is None else recorder
        self.config = config
        self.clock = clock
        self.timers = Timers()
        self.links = EntityLinks()
        self.open_connections = 0
        self.created_at = milliseconds(clock)
        self.faults = Faults()
        self.region = 1 if config.geo_replicated else None
        self.queues = {queue.name.lower(): Queue(queue, self) for queue in config.queues}
        self.topics = {topic.name.lower(): Topic(topic, self) for topic in config.topics}
        self.hubs = {hub.name.lower(): Hub(hub, clock, self.recorder) for hub in config.hubs}
        self._idle = IdleEntities(self.entities, self.links, self.remove)
        self.watch_idle()

    def entities(self) -> Iterator[Entity]:
        """Yield all queues, topics and subscriptions."""
        yield from self.queues.values()
        for topic in self.topics.values():
            yield topic
            yield from topic.subscriptions.values()

    def watch_idle(self) -> None:
        """Set the timer for entities that delete themselves; call it when one is created or changed."""
        deadline = self._idle.next_deadline()
        if deadline is not None:
            self.timers.set(self._idle, deadline)

    def remove(self, entity: Entity) -> None:
        """Remove an entity with its contents, and end its links."""
        match entity:
            case Queue():
                self.queues.pop(entity.path.lower(), None)
            case Topic():
                self.topics.pop(entity.path.lower(), None)
            case Subscription():
                topic = self.topics.get(top_level(entity.path))
                if topic is not None:
                    topic.remove(entity)
        owners: list[Timed] = [*entity.parts]
        if isinstance(entity, Topic):
            owners += [entity, *(part for each in entity.subscriptions.values() for part in each.parts)]
        else:
            owners.append(entity.backlog.forwarding)
        for owner in owners:
            self.timers.forget(owner)
        for each in self.entities():
            if not isinstance(each, Topic):
                each.backlog.forwarding.lose(entity.path)
        self.links.detach_deleted(entity.path.lower(), deleted(entity.path))

    # Addresses

    def queue(self, name: str) -> Queue:
        """Return a queue by name; this and the methods below raise Refusal(NOT_FOUND) for an unknown name."""
        return self._found(self.queues.get(name.lower()), name)

    def topic(self, name: str) -> Topic:
        """Return a topic by name."""
        return self._found(self.topics.get(name.lower()), name)

    def subscription(self, topic: str, name: str) -> Subscription:
        """Return a subscription by the names of its topic and its own."""
        return self._found(self.topic(topic).subscriptions.get(name.lower()), f"{topic}/Subscriptions/{name}")

    def hub(self, name: str) -> Hub:
        """Return an event hub by name."""
        return self._found(self.hubs.get(name.lower()), name)

    def is_hub(self, path: str) -> bool:
        """Return whether a path, as `path_of` returns it, is that of a hub or of a part of one."""
        return any(path.partition(part)[0] in self.hubs for part in ("/consumergroups/", "/partitions/"))

    def entity(self, path: str) -> Entity:
        """Return the queue, topic or subscription at a path."""
        topic, separator, subscription = path.lower().partition("/subscriptions/")
        if separator:
            return self.subscription(topic, subscription)
        entity = self.queues.get(path.lower())
        return self.topic(path) if entity is None else entity

    def entity_of(self, path: str) -> Entity:
        """Return the entity of a path, which may be that of a sub-queue."""
        return self.entity(SUB_QUEUE.sub("", path, count=1))

    def store(self, path: str) -> MessageStore:
        """Return the store that a receiver at a path receives from."""
        found = SUB_QUEUE.search(path)
        entity = self.entity(path if found is None else path[: found.start()])
        if isinstance(entity, Topic):
            # dotnet-architecture/eShopOnContainers issue 1698
            name = f"topic:{entity.path}" if found is None else path
            raise Refusal(errors.NOT_FOUND, f"The messaging entity '{self.name}:{name}' could not be found.")
        backlog = entity.backlog
        if found is None:
            return backlog.store
        return backlog.transfer_dead_letters if found[1] else backlog.dead_letters

    def target(self, path: str) -> Queue | Topic:
        """Return the queue or topic that a sender at a path sends to."""
        entity = self.entity(path)
        if isinstance(entity, Subscription):
            raise Refusal(NOT_ALLOWED, f"{path}: it is a subscription, expected a queue or topic to send to")
        return entity

    def check_exists(self, path: str) -> None:
        """Raise Refusal(NOT_FOUND) unless a path in lower case is within an entity, or is that of the namespace."""
        parts = path.split("/")
        prefixes = ("/".join(parts[:end]) for end in range(1, len(parts) + 1))
        entities = (self.queues, self.topics, self.hubs)
        if not path.startswith("$") and path and not any(prefix in names for prefix in prefixes for names in entities):
            self._found(None, path)

    def max_message_size(self, entity: Queue | Topic) -> int:
        """Return the maximum message size of an entity, in bytes."""
        return entity.config.max_message_size or self.config.max_message_size

    def _found[Found](self, found: Found | None, path: str) -> Found:
        if found is None:
            raise Refusal(errors.NOT_FOUND, f"The messaging entity '{self.name}:{path}' could not be found.")
        return found

    def counts(self) -> dict[str, Counts]:
        """Return the counts of all queues and subscriptions by path."""
        queues = {queue.path: queue.backlog.counts(len(queue.incoming.scheduled)) for queue in self.queues.values()}
        subscriptions = {
            subscription.path: subscription.backlog.counts()
            for topic in self.topics.values()
            for subscription in topic.subscriptions.values()
        }
        return queues | subscriptions

    def lose_sessions(self) -> None:
        """End all locks on sessions."""
        for entity in self.entities():
            if not isinstance(entity, Topic) and isinstance(entity.backlog.store, SessionStore):
                entity.backlog.store.lose_sessions()

    def fail_over(self) -> int:
        """
        Make another region the primary one, and return its number; hubs are geo-replicated from then on.

        All events are in the other region too. Its clients have to connect again: the caller cuts their connections.
        """
        self.region = 2 if self.region is None else self.region + 1
        return self.region

    # Forwarding

    def forward(self, content: Content, to: str, hops: int) -> None:
        """Send *content* on its next hop, also to a disabled entity; raises a Refusal with the reason if it cannot."""
        if hops > MAX_HOPS:
            raise Refusal("MaxTransferHopCountExceeded", f"more than {MAX_HOPS} entities have forwarded it")
        target = self.target(to)
        if isinstance(target, Queue) and target.config.requires_session and content.session_id is None:
            raise Refusal("Session ID is null.", NO_SESSION_ID)
        target.check(content, is_forwarded=True)
        target.incoming.accept(replace(content, scheduled_enqueue_time=None), hops)

    def check_transfer(self, contents: Iterable[Content], *, to: str, via: str) -> None:
        """Raise a Refusal unless the entity at *via* can transfer messages to the one at *to*."""
        entity = self.target(via)
        check_can(Use.SEND, entity.path, entity.config.status)
        target = self.target(to)
        if isinstance(entity, Topic):
            # It has no dead-letter queue for what the target refuses later.
            target.check(*contents)

    def transfer(self, contents: Iterable[Content], *, to: str, via: str) -> None:
        """Send messages to *to* via another entity, after `check_transfer`; what is refused is dead-lettered there."""
        target, entity = self.target(to), self.target(via)
        for content in contents:
            if isinstance(entity, Topic):
                target.incoming.accept(content)
                continue
            try:
                target.publish(content)
            except Refusal as refusal:
                texts = why(refusal.condition, refusal.description)
                entity.backlog.transfer_dead_letters.add(changed(content, texts))

    # Time

    def advance(self) -> None:
        """Do everything that is due."""
        self.timers.advance(milliseconds(self.clock))

    def next_deadline(self) -> int | None:
        """Return when something is due next, in milliseconds since 1970 UTC."""
        return self.timers.next_deadline()


def deleted(path: str) -> Refusal:
    """Return the refusal for what uses an entity that was deleted."""
    return Refusal(errors.NOT_FOUND, f"The messaging entity '{path}' has been deleted.")
