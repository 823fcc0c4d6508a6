"""The entities of a broker; what is not said is as in Azure, not as in the emulators with their lower limits."""

from dataclasses import dataclass
from datetime import timedelta

from shared.rules import Rule, TrueFilter

DEFAULT_RULE = Rule("$Default", TrueFilter())


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """A queue; None means never for a duration."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """A topic and its subscriptions."""

    name: str
    subscriptions: tuple[SubscriptionConfig, ...] = ()
    default_message_time_to_live: timedelta | None = None
    requires_duplicate_detection: bool = False
    duplicate_detection_history_time_window: timedelta = timedelta(minutes=10)
    max_message_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HubConfig:
    """An event hub; the consumer group $Default is always there."""

    name: str
    partition_count: int = 1
    consumer_groups: tuple[str, ...] = ()
    message_retention: timedelta = timedelta(days=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceConfig:
    """
    A namespace on a port of its own; None lets the broker choose.

    Units: max_message_size in bytes, 256 KiB as in the Standard tier; event hubs take 1 MiB.
    """

    name: str
    queues: tuple[QueueConfig, ...] = ()
    topics: tuple[TopicConfig, ...] = ()
    hubs: tuple[HubConfig, ...] = ()
    port: int | None = None
    max_message_size: int = 256 * 1024
