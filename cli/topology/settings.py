"""
The settings of entities: which entities have one, and what it is called elsewhere.

Settings have the names of the properties of azure-servicebus, which are also those of the local broker's configuration.
Resource Manager has the same words as `requiresSession`; the administration API and Config.json as `RequiresSession`.
"""

from datetime import timedelta
from typing import NamedTuple

from cli.topology.model import Kind, Setting
from shared.durations import format_duration


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


def arm_properties() -> dict[str, str]:
    """Return the settings that Resource Manager has, each with its name there."""
    return {name: name[0] + pascal(name)[1:] for name, known in SETTINGS.items() if known.az is not None}


def written(value: Setting) -> bool | int | str | None:
    """Return a value as files and requests have it: durations in ISO 8601."""
    return format_duration(value) if isinstance(value, timedelta) else value
