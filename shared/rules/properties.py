"""The properties of a message for rules, and the system properties that rules can name."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, cast

from shared.amqp.values import Value, uint
from shared.rules.value_types import TICKS_PER_MILLISECOND, ticks_of, timespan

_TIME_TO_LIVE_LIMIT = 2**32


class Properties(Protocol):
    """
    The properties of one message, as rules read them.

    Units: TimeToLive is a uint or ulong of milliseconds; times are timestamps.
    """

    def system(self, name: str) -> Value | None:
        """Return a system property by its name in `SYSTEM_PROPERTIES`, spelled as there; None if it is not set."""
        ...

    def user(self, name: str) -> Value | None:
        """Return the application property whose name in lower case is *name*; None if it is missing."""
        ...


class MutableProperties(Properties, Protocol):
    """The properties of one message, as actions change them."""

    def set_system(self, name: str, value: Value) -> None:
        """Set a system property; the value is of the type that `SYSTEM_PROPERTIES` names."""
        ...

    def remove_system(self, name: str) -> None:
        """Unset a system property; no effect if it is not set."""
        ...

    def set_user(self, name: str, value: Value) -> None:
        """Set an application property; names that differ only in case are the same, and the spelling is kept."""
        ...

    def remove_user(self, name: str) -> None:
        """Remove the application property of this name in any case; no effect if it is missing."""
        ...


@dataclass(frozen=True, slots=True)
class SystemProperty:
    """A system property: its canonical name, its type (of `value_types`), and whether an action may set it."""

    name: str
    type: str
    is_settable: bool


def _named(properties: Iterable[tuple[SystemProperty, str]]) -> dict[str, SystemProperty]:
    return {name.lower(): each for each, other_names in properties for name in (each.name, *other_names.split())}


# By lower-case name: the names of BrokeredMessage and of Azure.Messaging.ServiceBus, which differ in places.
SYSTEM_PROPERTIES = _named(
    [
        (SystemProperty("ContentType", "string", is_settable=True), ""),
        (SystemProperty("CorrelationId", "string", is_settable=True), ""),
        (SystemProperty("ForcePersistence", "boolean", is_settable=True), ""),
        (SystemProperty("MessageId", "string", is_settable=True), ""),
        (SystemProperty("PartitionKey", "string", is_settable=True), ""),
        (SystemProperty("ReplyTo", "string", is_settable=True), ""),
        (SystemProperty("ReplyToSessionId", "string", is_settable=True), ""),
        (SystemProperty("ScheduledEnqueueTimeUtc", "timestamp", is_settable=True), "ScheduledEnqueueTime"),
        (SystemProperty("SessionId", "string", is_settable=True), ""),
        (SystemProperty("Subject", "string", is_settable=True), "Label"),
        (SystemProperty("TimeToLive", "timespan", is_settable=True), ""),
        (SystemProperty("To", "string", is_settable=True), ""),
        (SystemProperty("ViaPartitionKey", "string", is_settable=True), "TransactionPartitionKey"),
        (SystemProperty("DeadLetterSource", "string", is_settable=False), ""),
        (SystemProperty("DeliveryCount", "int", is_settable=False), ""),
        (SystemProperty("EnqueuedSequenceNumber", "long", is_settable=False), ""),
        (SystemProperty("EnqueuedTimeUtc", "timestamp", is_settable=False), "EnqueuedTime"),
        (SystemProperty("ExpiresAtUtc", "timestamp", is_settable=False), "ExpiresAt"),
        (SystemProperty("LockedUntilUtc", "timestamp", is_settable=False), "LockedUntil"),
        (SystemProperty("LockToken", "uuid", is_settable=False), ""),
        (SystemProperty("SequenceNumber", "long", is_settable=False), ""),
        (SystemProperty("Size", "long", is_settable=False), ""),
        (SystemProperty("State", "int", is_settable=False), ""),
    ]
)


def timespan_of_header(value: Value) -> Value:
    """Return the milliseconds of a header's time to live as the TimeSpan that rules see."""
    return timespan(cast("int", value.payload) * TICKS_PER_MILLISECOND)


def header_of_timespan(value: Value) -> Value:
    """Return a TimeSpan as the milliseconds of a header; a ValueError if it is out of range."""
    milliseconds = ticks_of(value) // TICKS_PER_MILLISECOND
    if not 0 < milliseconds < _TIME_TO_LIVE_LIMIT:
        raise ValueError("a duration from 1 ms to 49.17:02:47.295")
    return uint(milliseconds)
