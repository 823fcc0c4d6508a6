"""The configuration of a broker's entities. The defaults are Azure's, not those of the emulators, which are lower."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from shared.rules import Rule, TrueFilter

DEFAULT_RULE = Rule("$Default", TrueFilter())
DEFAULT_MAX_SIZE = 1024
DEFAULT_COUNTS_LAG = timedelta(seconds=2)
STANDARD_MESSAGE_SIZE = 256 * 1024
"""The most bytes of a message in the Standard tier. A namespace that takes more is a Premium one."""
MAX_MAX_SIZE = 81_920
MAX_PARTITIONS = 1024
"""Of an event hub in a dedicated cluster."""
EXPECTED_NAME = "letters, digits, . - _ /, 260 at most"
"""What the name of a queue, topic or event hub consists of."""
EXPECTED_CHILD_NAME = "letters, digits, . - _, 50 at most"
_CHILD_NAME = re.compile(r"[$A-Za-z0-9](?:[A-Za-z0-9._-]{0,48}[A-Za-z0-9._-])?")
_ENTITY_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,258}[A-Za-z0-9._-])?")


def is_entity_name(name: str) -> bool:
    """Return whether a queue, a topic or an event hub may have this name."""
    return _ENTITY_NAME.fullmatch(name) is not None and "//" not in name


def is_child_name(name: str) -> bool:
    """Return whether a subscription or a rule may have this name."""
    return _CHILD_NAME.fullmatch(name) is not None


class EntityStatus(StrEnum):
    """What clients may do with an entity."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"


class Right(StrEnum):
    """A right of a key; Manage includes the other two."""

    LISTEN = "Listen"
    SEND = "Send"
    MANAGE = "Manage"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedAccessKey:
    """A named key with its rights, of a namespace or of one entity (its authorization rule)."""

    name: str
    key: str = field(repr=False)
    secondary_key: str | None = field(default=None, repr=False)
    rights: frozenset[Right] = frozenset(Right)


@dataclass(frozen=True, kw_only=True)
class _EntityConfig:
    """What queues, topics and subscriptions have in common; None means never for a duration."""

    name: str
    default_message_time_to_live: timedelta | None = None
    status: EntityStatus = EntityStatus.ACTIVE
    auto_delete_on_idle: timedelta | None = None
    user_metadata: str | None = None
    enable_batched_operations: bool = True


@dataclass(frozen=True, kw_only=True)
class _SourceConfig(_EntityConfig):
    """What clients receive from."""

    requires_session: bool = False
    lock_duration: timedelta = timedelta(minutes=1)
    max_delivery_count: int = 10
    dead_lettering_on_message_expiration: bool = False
    forward_to: str | None = None
    forward_dead_lettered_messages_to: str | None = None


@dataclass(frozen=True, kw_only=True)
class _TargetConfig(_EntityConfig):
    """
    What clients send to.

    Units: max_message_size in bytes; max_size in megabytes, including the dead-letter queue. Settings without effect
    (express, batched operations, metadata) are only kept so that clients can read them back.
    """

    requires_duplicate_detection: bool = False
    duplicate_detection_history_time_window: timedelta = timedelta(minutes=10)
    max_message_size: int | None = None
    max_size: int = DEFAULT_MAX_SIZE
    authorization_rules: tuple[SharedAccessKey, ...] = ()
    enable_partitioning: bool = False
    enable_express: bool = False


@dataclass(frozen=True, kw_only=True)
class QueueConfig(_SourceConfig, _TargetConfig):
    """A queue."""


@dataclass(frozen=True, kw_only=True)
class SubscriptionConfig(_SourceConfig):
    """A subscription of a topic."""

    rules: tuple[Rule, ...] = (DEFAULT_RULE,)
    dead_lettering_on_filter_evaluation_exceptions: bool = True


@dataclass(frozen=True, kw_only=True)
class TopicConfig(_TargetConfig):
    """A topic and its subscriptions."""

    subscriptions: tuple[SubscriptionConfig, ...] = ()
    support_ordering: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class HubConfig:
    """
    An event hub; it always has the consumer group $Default.

    Units: retention_size in bytes per partition, None for a limit by time only.
    """

    name: str
    partition_count: int = 1
    consumer_groups: tuple[str, ...] = ()
    message_retention: timedelta = timedelta(days=1)
    retention_size: int | None = None
    status: EntityStatus = EntityStatus.ACTIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLimits:
    """
    How long links and connections last, and how much they carry; None means no limit.

    link_idle ends a link to an entity after this time without use, publisher_idle one that sends to a hub,
    connection_idle a connection this time after its last link has ended, and after a fifth of it one that never had a
    link. For session_handover after a receiver has closed, its session is locked for all. An update of an entity ends
    its links if updates_detach.
    """

    link_idle: timedelta | None = timedelta(minutes=10)
    publisher_idle: timedelta | None = timedelta(minutes=30)
    connection_idle: timedelta | None = timedelta(minutes=5)
    session_handover: timedelta = timedelta(milliseconds=100)
    updates_detach: bool = True
    max_unsettled: int | None = 5_000
    """Of one AMQP session."""
    max_tokens: int | None = 1_000
    """Of one connection."""
    peek_idle: timedelta | None = timedelta(minutes=15)
    """After this time without a request, a link to `$management` answers one peek with nothing."""
    max_peeked: int = 250
    """Messages in the answer to a peek, or to a request for deferred messages."""
    max_peeked_of_partitions: int = 1
    """The same of a partitioned entity."""


class OnDemand(StrEnum):
    """What a namespace creates when a client uses an entity that does not exist."""

    QUEUES = "queues"
    HUBS = "hubs"


@dataclass(frozen=True, slots=True)
class Pairing:
    """The alias of a primary namespace, and its secondary one; without a port the broker chooses one for the alias."""

    alias: str
    secondary: str
    port: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceConfig:
    """
    A namespace on a port of its own; None lets the broker choose.

    Units: max_message_size in bytes; event hubs take 1 MiB. Without shared access keys
    every client is accepted; with keys and accepts_entra_tokens, so is every token of another kind. With
    disable_local_auth no key is accepted, without public_network_access no client. The offsets of a geo_replicated
    namespace are those of Azure's geo-replication. An alias of paired namespaces leads to the one that names the other
    (`server.py`); it has a port of its own.

    max_connections limits the connections; max_receivers the receivers of one entity (of a
    topic: of all its subscriptions together). released_go_last puts a message that its receiver releases behind all
    others of an entity without sessions, as was reported of Azure; otherwise it returns to its place. As many
    messages of a partition as lock_group_size have the lock of the first of them. on_demand creates entities at their
    first use (`core/on_demand.py`); None refuses unknown ones, as Azure does. The counts of the administration are up
    to counts_lag old. Where a message expires_lazily, it stays until somebody receives from its entity; where
    deferred_expire, deferred ones do too. Subscriptions get their copies copy_delay after the topic.
    """

    name: str
    queues: tuple[QueueConfig, ...] = ()
    topics: tuple[TopicConfig, ...] = ()
    hubs: tuple[HubConfig, ...] = ()
    port: int | None = None
    max_message_size: int = STANDARD_MESSAGE_SIZE
    shared_access_keys: tuple[SharedAccessKey, ...] = ()
    accepts_entra_tokens: bool = False
    disable_local_auth: bool = False
    public_network_access: bool = True
    geo_replicated: bool = False
    pairing: Pairing | None = None
    released_go_last: bool = False
    lock_group_size: int = 1
    max_connections: int | None = None
    max_receivers: int | None = None
    on_demand: OnDemand | None = None
    counts_lag: timedelta = DEFAULT_COUNTS_LAG
    expires_lazily: bool = False
    deferred_expire: bool = False
    copy_delay: timedelta = timedelta()
    links: LinkLimits = LinkLimits()

    def missing_targets(self) -> Iterator[tuple[str, str]]:
        """Yield the path of each entity that forwards to one that the namespace does not declare, and its name."""
        names = {queue.name.lower() for queue in self.queues} | {topic.name.lower() for topic in self.topics}
        sources: list[tuple[str, QueueConfig | SubscriptionConfig]] = [(queue.name, queue) for queue in self.queues]
        for topic in self.topics:
            sources += [
                (f"{topic.name}/Subscriptions/{subscription.name}", subscription)
                for subscription in topic.subscriptions
            ]
        for path, source in sources:
            for target in (source.forward_to, source.forward_dead_lettered_messages_to):
                if target is not None and target.lower() not in names:
                    yield path, target
