"""
The settings of queues, topics and subscriptions: their names, their limits, and the attributes that keep them.

Descriptions of the administration and the Config.json have the same names and the same limits.

Source: Microsoft Learn, "Service Bus REST API"; the limits in the recordings of azure-sdk-for-python and the constants
of azure-service-bus-dotnet: a lock of 5 s to 5 min, a window of 20 s to 7 days, a time to live of 1 s at least.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from busway_broker import errors
from busway_broker.config import MAX_MAX_SIZE, EntityStatus
from busway_broker.core.namespace import without_host
from busway_broker.errors import Refusal
from shared.durations import format_duration, parse_duration

_KILOBYTE = 1024
_MAX_METADATA = 1024
NO_CONDITION = "a correlation filter without a condition"
CORRELATION = {
    "CorrelationId": "correlation_id",
    "MessageId": "message_id",
    "To": "to",
    "ReplyTo": "reply_to",
    "Label": "subject",
    "SessionId": "session_id",
    "ReplyToSessionId": "reply_to_session_id",
    "ContentType": "content_type",
}
"""The attributes of a correlation filter by their names in descriptions and files, in the order of AMQP."""


@dataclass(frozen=True, slots=True)
class Field:
    """
    One property of an entity; `element` is its name in descriptions and files.

    Shape:   `read` converts the text of an element to a value, `write` a value to text, or to None for no element.
             `host` is the host in the addresses of forwarding targets.
    Raises:  `read` a ValueError that says what was expected.
    """

    element: str
    attribute: str
    read: Callable[[str], object]
    write: Callable[[object, str], str | None]

    def value(self, text: str) -> object:
        """Return the value of an element; Refusal(ARGUMENT_ERROR) for an invalid one."""
        try:
            return self.read(text.strip())
        except ValueError as error:
            raise Refusal(errors.ARGUMENT_ERROR, f"{self.element} is '{text.strip()}': {error}") from error


def text(element: str, attribute: str) -> Field:
    """Return a text field."""

    def read(value: str) -> str | None:
        if len(value) > _MAX_METADATA:
            raise ValueError(f"it has {len(value)} characters, expected at most {_MAX_METADATA}")
        return value or None

    return Field(element, attribute, read, lambda value, _: None if value is None else str(value))


def flag(element: str, attribute: str) -> Field:
    """Return a boolean field."""

    def read(value: str) -> bool:
        if value.lower() not in ("true", "false"):
            raise ValueError("expected true or false")
        return value.lower() == "true"

    return Field(element, attribute, read, lambda value, _: "true" if value else "false")


def number(element: str, attribute: str, minimum: int, maximum: int, unit: int = 1) -> Field:
    """Return a field for a whole number, stored as *unit* times the written number."""

    def read(value: str) -> int:
        if not (value.isascii() and value.isdigit()) or not minimum <= int(value) <= maximum:
            raise ValueError(f"expected a whole number from {minimum} to {maximum}")
        return int(value) * unit

    return Field(element, attribute, read, lambda value, _: str(value // unit) if isinstance(value, int) else None)


def duration(
    element: str, attribute: str, *, minimum: timedelta = timedelta(milliseconds=1), maximum: timedelta | None = None
) -> Field:
    """Return a field for a duration; without a maximum it may be infinite."""

    def read(value: str) -> timedelta | None:
        length = parse_duration(value)
        if length is None and maximum is None:
            return None
        if length is None or length < minimum or (maximum is not None and length > maximum):
            most = "or more" if maximum is None else f"to {format_duration(maximum)}"
            raise ValueError(f"expected {format_duration(minimum)} {most}")
        return length

    def write(value: object, _: str) -> str | None:
        return format_duration(value if isinstance(value, timedelta) else None)

    return Field(element, attribute, read, write)


def target(element: str, attribute: str) -> Field:
    """Return a field for another entity, stored as its name and written as its address."""

    def write(value: object, host: str) -> str | None:
        return None if value is None else f"sb://{host}/{value}"

    return Field(element, attribute, lambda value: without_host(value) or None, write)


def _status(value: str) -> EntityStatus:
    if value not in EntityStatus:
        raise ValueError(f"expected {', '.join(EntityStatus)}")
    return EntityStatus(value)


def iso_time(milliseconds: int | None) -> str:
    """Return a time in the form of descriptions; None is the minimum time of .NET, for never."""
    if milliseconds is None:
        return "0001-01-01T00:00:00Z"
    time = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


LOCK_DURATION = duration("LockDuration", "lock_duration", minimum=timedelta(seconds=5), maximum=timedelta(minutes=5))
REQUIRES_SESSION = flag("RequiresSession", "requires_session")
TIME_TO_LIVE = duration("DefaultMessageTimeToLive", "default_message_time_to_live", minimum=timedelta(seconds=1))
DEAD_LETTERING_ON_EXPIRATION = flag("DeadLetteringOnMessageExpiration", "dead_lettering_on_message_expiration")
DEAD_LETTERING_ON_FILTER_ERRORS = flag(
    "DeadLetteringOnFilterEvaluationExceptions", "dead_lettering_on_filter_evaluation_exceptions"
)
MAX_DELIVERY_COUNT = number("MaxDeliveryCount", "max_delivery_count", 1, 2**31 - 1)
BATCHED_OPERATIONS = flag("EnableBatchedOperations", "enable_batched_operations")
STATUS = Field("Status", "status", _status, lambda value, _: str(value))
FORWARD_TO = target("ForwardTo", "forward_to")
FORWARD_DEAD_LETTERED = target("ForwardDeadLetteredMessagesTo", "forward_dead_lettered_messages_to")
USER_METADATA = text("UserMetadata", "user_metadata")
AUTO_DELETE_ON_IDLE = duration("AutoDeleteOnIdle", "auto_delete_on_idle", minimum=timedelta(minutes=5))
MAX_SIZE = number("MaxSizeInMegabytes", "max_size", 1, MAX_MAX_SIZE)
DUPLICATE_DETECTION = flag("RequiresDuplicateDetection", "requires_duplicate_detection")
DUPLICATE_WINDOW = duration(
    "DuplicateDetectionHistoryTimeWindow",
    "duplicate_detection_history_time_window",
    minimum=timedelta(seconds=20),
    maximum=timedelta(days=7),
)
PARTITIONING = flag("EnablePartitioning", "enable_partitioning")
EXPRESS = flag("EnableExpress", "enable_express")
ORDERING = flag("SupportOrdering", "support_ordering")
MAX_MESSAGE_SIZE = number("MaxMessageSizeInKilobytes", "max_message_size", 1, 102_400, _KILOBYTE)

QUEUE_FIELDS: tuple[Field, ...] = (
    LOCK_DURATION,
    MAX_SIZE,
    DUPLICATE_DETECTION,
    REQUIRES_SESSION,
    TIME_TO_LIVE,
    DEAD_LETTERING_ON_EXPIRATION,
    DUPLICATE_WINDOW,
    MAX_DELIVERY_COUNT,
    BATCHED_OPERATIONS,
    STATUS,
    FORWARD_TO,
    USER_METADATA,
    AUTO_DELETE_ON_IDLE,
    PARTITIONING,
    EXPRESS,
    FORWARD_DEAD_LETTERED,
    MAX_MESSAGE_SIZE,
)
TOPIC_FIELDS: tuple[Field, ...] = (
    TIME_TO_LIVE,
    MAX_SIZE,
    DUPLICATE_DETECTION,
    DUPLICATE_WINDOW,
    BATCHED_OPERATIONS,
    STATUS,
    USER_METADATA,
    ORDERING,
    AUTO_DELETE_ON_IDLE,
    PARTITIONING,
    EXPRESS,
    MAX_MESSAGE_SIZE,
)
SUBSCRIPTION_FIELDS: tuple[Field, ...] = (
    LOCK_DURATION,
    REQUIRES_SESSION,
    TIME_TO_LIVE,
    DEAD_LETTERING_ON_EXPIRATION,
    DEAD_LETTERING_ON_FILTER_ERRORS,
    MAX_DELIVERY_COUNT,
    BATCHED_OPERATIONS,
    STATUS,
    FORWARD_TO,
    USER_METADATA,
    FORWARD_DEAD_LETTERED,
    AUTO_DELETE_ON_IDLE,
)
