"""
The entities of a namespace as plans compare them, and their settings: which have one, what it is called elsewhere.

Settings have the names of the properties of azure-servicebus, which are also those of the local broker's configuration.
Resource Manager has the same words as `requiresSession`; the administration API and Config.json as `RequiresSession`.
A duration of None is unlimited.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import NamedTuple

from shared.durations import format_duration
from shared.rules import CorrelationFilter, RuleSyntaxError, parse_action, parse_filter

type Setting = bool | int | str | timedelta | None

DEFAULT_RULE = "$Default"
RULE_NAME = "busway"
EVERYTHING = "1=1"


class Kind(StrEnum):
    """What an entity is."""

    QUEUE = "queue"
    TOPIC = "topic"
    SUBSCRIPTION = "subscription"
    HUB = "hub"
    CONSUMER_GROUP = "consumer group"


# Entities are created in this order: the second parts need the first, and what is sent to needs its readers.
ORDER = {kind: position for position, kind in enumerate(Kind)}

FIXED = frozenset(("requires_session", "requires_duplicate_detection", "enable_partitioning", "partition_count"))
"""Settings that Azure does not change on an entity that exists; only Premium and Dedicated add partitions to a hub."""


@dataclass(frozen=True, slots=True)
class Name:
    """An entity's kind and name; that of a subscription or consumer group has two parts."""

    kind: Kind
    parts: tuple[str, ...]

    @property
    def key(self) -> tuple[Kind, str]:
        """The name for comparisons, which ignore case."""
        return self.kind, "/".join(self.parts).lower()

    @property
    def parent(self) -> "Name | None":
        """The topic of a subscription, the hub of a consumer group."""
        if len(self.parts) == 1:
            return None
        return Name(Kind.TOPIC if self.kind is Kind.SUBSCRIPTION else Kind.HUB, self.parts[:1])

    def __str__(self) -> str:
        return f"{self.kind} {'/'.join(self.parts)}"


@dataclass(frozen=True, slots=True)
class SubscriptionRule:
    """A rule of a subscription with its SQL as it was written; a correlation filter has none."""

    name: str
    filter: str | CorrelationFilter
    action: str | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    """Values of @names in the SQL, as text; no task file has any."""

    @property
    def selects_everything(self) -> bool:
        """Whether it passes every message unchanged, as the rule of a new subscription does."""
        return self.action is None and isinstance(self.filter, str) and self.filter.replace(" ", "") == EVERYTHING

    def does_the_same(self, other: "SubscriptionRule") -> bool:
        """Return whether both select and change the same, however they are spelled and named."""
        return _normal(self) == _normal(other)

    def __str__(self) -> str:
        text = self.filter if isinstance(self.filter, str) else "a correlation filter"
        if self.parameters:
            text += f" with {', '.join(f'{name} = {value}' for name, value in self.parameters)}"
        return text if self.action is None else f"{text}, then {self.action}"


NEW_RULE = SubscriptionRule(DEFAULT_RULE, EVERYTHING)
"""The rule of a new subscription."""


def _normal(rule: SubscriptionRule) -> tuple[object, ...]:
    return (
        rule.parameters,
        rule.filter if isinstance(rule.filter, CorrelationFilter) else _spelled(rule.filter, is_filter=True),
        None if rule.action is None else _spelled(rule.action, is_filter=False),
    )


def _spelled(text: str, *, is_filter: bool) -> str:
    """Return the SQL in its normal spelling; a text that this parser does not know as it is."""
    try:
        return str(parse_filter(text) if is_filter else parse_action(text))
    except RuleSyntaxError:
        return text


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity that exists, with the settings that are known of it."""

    name: Name
    settings: Mapping[str, Setting] = field(default_factory=dict)
    rules: tuple[SubscriptionRule, ...] = ()


class Namespace:
    """The entities that exist in a namespace."""

    def __init__(self, entities: Iterable[Entity]) -> None:
        """Index *entities* by their names."""
        self.entities = {entity.name.key: entity for entity in entities}

    def find(self, name: Name) -> Entity | None:
        """Return the entity of this name, ignoring case."""
        return self.entities.get(name.key)

    def sorted(self) -> list[Entity]:
        """Return the entities in the order in which they would be created."""
        return sorted(self.entities.values(), key=lambda entity: (ORDER[entity.name.kind], entity.name.key))


def text_of(value: Setting, setting: str = "") -> str:
    """Return a setting's value for people: durations in ISO 8601, and what is off as such."""
    match value:
        case bool():
            return "true" if value else "false"
        case timedelta():
            return format_duration(value)
        case None:
            return "none" if setting.startswith("forward") else "unlimited"
        case _:
            return str(value)


class Known(NamedTuple):
    """What is known of a setting."""

    kinds: frozenset[Kind]
    az: str | None = None
    """Its option of the Azure CLI; None for one that neither that nor Resource Manager sets."""
    is_emulated: bool = False
    """Whether Microsoft's emulators have it too."""
    default: Setting = None
    """The value that a Config.json for the local broker need not have; None for one that no such file has."""
    is_noticed: bool = True
    """Whether an application notices it when it switches to another site."""


_QUEUE, _TOPIC, _SUBSCRIPTION, _HUB = (
    frozenset((kind,)) for kind in (Kind.QUEUE, Kind.TOPIC, Kind.SUBSCRIPTION, Kind.HUB)
)
_ALL = _QUEUE | _TOPIC | _SUBSCRIPTION
SETTINGS = {
    "default_message_time_to_live": Known(_ALL, "--default-message-time-to-live", is_emulated=True),
    "lock_duration": Known(_QUEUE | _SUBSCRIPTION, "--lock-duration", is_emulated=True),
    "max_delivery_count": Known(_QUEUE | _SUBSCRIPTION, "--max-delivery-count", is_emulated=True),
    "requires_session": Known(_QUEUE | _SUBSCRIPTION, "--enable-session", is_emulated=True),
    "dead_lettering_on_message_expiration": Known(
        _QUEUE | _SUBSCRIPTION, "--enable-dead-lettering-on-message-expiration", is_emulated=True
    ),
    "requires_duplicate_detection": Known(_QUEUE | _TOPIC, "--enable-duplicate-detection", is_emulated=True),
    "duplicate_detection_history_time_window": Known(
        _QUEUE | _TOPIC, "--duplicate-detection-history-time-window", is_emulated=True
    ),
    "forward_to": Known(_QUEUE | _SUBSCRIPTION, "--forward-to", is_emulated=True, is_noticed=False),
    "forward_dead_lettered_messages_to": Known(
        _QUEUE | _SUBSCRIPTION, "--forward-dead-lettered-messages-to", is_emulated=True, is_noticed=False
    ),
    "status": Known(_ALL, default="Active"),
    "max_size_in_megabytes": Known(_QUEUE | _TOPIC, "--max-size", default=1024),
    "max_message_size_in_kilobytes": Known(_QUEUE | _TOPIC, default=256),
    "dead_lettering_on_filter_evaluation_exceptions": Known(
        _SUBSCRIPTION, "--dead-letter-on-filter-exceptions", default=True, is_noticed=False
    ),
    "enable_partitioning": Known(_QUEUE | _TOPIC, "--enable-partitioning", default=False),
    "support_ordering": Known(_TOPIC, "--support-ordering", default=True),
    "auto_delete_on_idle": Known(_ALL, default=timedelta.max, is_noticed=False),
    "user_metadata": Known(_ALL, default="", is_noticed=False),
    "enable_batched_operations": Known(_ALL, default=True, is_noticed=False),
    "enable_express": Known(_QUEUE | _TOPIC, default=False, is_noticed=False),
    "partition_count": Known(_HUB, "--partition-count"),
}

CORRELATION = (
    "content_type",
    "correlation_id",
    "message_id",
    "reply_to",
    "reply_to_session_id",
    "session_id",
    "label",
    "to",
)
"""The fields of a correlation filter, as the SDK names them; its label is the subject of AMQP."""


def pascal(name: str) -> str:
    """Return the name of a setting or field in the administration API and in Config.json."""
    return "".join(map(str.capitalize, name.split("_")))


def written(value: Setting) -> bool | int | str | None:
    """Return a value as files and requests have it: durations in ISO 8601."""
    return format_duration(value) if isinstance(value, timedelta) else value
