"""The entities of a broker; what is not said is as in Azure, not as in the emulators with their lower limits."""

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from shared.rules import Rule, TrueFilter

DEFAULT_RULE = Rule("$Default", TrueFilter())
DEFAULT_MAX_SIZE = 1024
MAX_MAX_SIZE = 81_920


class EntityStatus(StrEnum):
    """What an entity may be used for at the moment."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"


class Right(StrEnum):
    """What a key lets its holder do; Manage includes the other two."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """
    A queue; None means never for a duration.

    Units: max_message_size in bytes; max_size in megabytes, the messages of the dead-letter queue among them. What has
    no effect on this machine (partitioning, express, batched operations, metadata) is kept to be read back.
    """

    name: str
    requires_session: bool = False
    lock_duration: timedelta = timedelta(minutes=1)
    max_delivery_count: int = 10
    default_message_time_to_live: timedelta | None = None
    dead_lettering_on_message_expiration: bool = False
    requires_duplicate_detection: bool = False
    duplicate_detection_history_time_window: timedelta = timedelta(minutes=10)
    forward_to: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    max_message_size: int | None = None
    max_size: int = DEFAULT_MAX_SIZE
    status: EntityStatus = EntityStatus.ACTIVE
    auto_delete_on_idle: timedelta | None = None
    authorization_rules: tuple[SharedAccessKey, ...] = ()
    user_metadata: str | None = None
    enable_batched_operations: bool = True
    enable_partitioning: bool = False
    enable_express: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionConfig:
    """A subscription of a topic."""

    name: str
    rules: tuple[Rule, ...] = (DEFAULT_RULE,)
    requires_session: bool = False
    lock_duration: timedelta = timedelta(minutes=1)
    max_delivery_count: int = 10
    default_message_time_to_live: timedelta | None = None
    dead_lettering_on_message_expiration: bool = False
    dead_lettering_on_filter_evaluation_exceptions: bool = True
    forward_to: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    status: EntityStatus = EntityStatus.ACTIVE
    auto_delete_on_idle: timedelta | None = None
    user_metadata: str | None = None
    enable_batched_operations: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """A topic and its subscriptions."""

    name: str
    subscriptions: tuple[SubscriptionConfig, ...] = ()
    default_message_time_to_live: timedelta | None = None
    requires_duplicate_detection: bool = False
    duplicate_detection_history_time_window: timedelta = timedelta(minutes=10)
    max_message_size: int | None = None
    max_size: int = DEFAULT_MAX_SIZE
    status: EntityStatus = EntityStatus.ACTIVE
    auto_delete_on_idle: timedelta | None = None
    authorization_rules: tuple[SharedAccessKey, ...] = ()
    user_metadata: str | None = None
    enable_batched_operations: bool = True
    enable_partitioning: bool = False
    enable_express: bool = False
    support_ordering: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class HubConfig:
    """
    An event hub; the consumer group $Default is always there.

    Units: retention_size in bytes per partition, None for no limit but the time.
    """

    name: str
    partition_count: int = 1
    consumer_groups: tuple[str, ...] = ()
    message_retention: timedelta = timedelta(days=1)
    retention_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceConfig:
    """
    A namespace on a port of its own; None lets the broker choose.

    Units: max_message_size in bytes, 256 KiB as in the Standard tier; event hubs take 1 MiB. Without shared access keys
    everybody is let in; without max_connections any number of them, without max_receivers any number of receivers
    at one entity (at a topic: at all of its subscriptions).
    """

    name: str
    queues: tuple[QueueConfig, ...] = ()
    topics: tuple[TopicConfig, ...] = ()
    hubs: tuple[HubConfig, ...] = ()
    port: int | None = None
    max_message_size: int = 256 * 1024
    shared_access_keys: tuple[SharedAccessKey, ...] = ()
    max_connections: int | None = None
    max_receivers: int | None = None
