"""
What an entity is used for, and when; what its messages take of its size, and how many the administration reports.

A topic stores a message once, however many subscriptions have a copy (a service engineer in azure-service-bus-java
301). One above 1 MB takes its size twice in a queue, and once for each copy and once more in a topic (Microsoft Learn,
Service Bus quotas).
"""

from collections.abc import Sized
from dataclasses import dataclass
from enum import Enum, auto
from typing import Self

from busway_broker import errors
from busway_broker.config import EntityStatus
from busway_broker.core.times import milliseconds
from busway_broker.errors import LinkRefusal, Refusal
from shared.clock import Clock

_MEGABYTE = 1024 * 1024
_LARGE = _MEGABYTE


class Use(Enum):
    """The purpose of a link."""

    SEND = auto()
    RECEIVE = auto()
    MANAGE = auto()


FORBIDDEN = {
    EntityStatus.ACTIVE: (),
    EntityStatus.DISABLED: (Use.SEND, Use.RECEIVE, Use.MANAGE),
    EntityStatus.SEND_DISABLED: (Use.SEND,),
    EntityStatus.RECEIVE_DISABLED: (Use.RECEIVE,),
}


@dataclass(slots=True)
class Times:
    """
    When an entity was created, changed and last used, that is, when a link was attached to it.

    Units: milliseconds since 1970 UTC; accessed_at is None for an unused entity.
    """

    created_at: int
    updated_at: int
    accessed_at: int | None = None

    @classmethod
    def new(cls, clock: Clock) -> Self:
        """Return the times of an entity that is created now."""
        return cls(milliseconds(clock), milliseconds(clock))


def check_can(use: Use, path: str, status: EntityStatus) -> None:
    """Raise Refusal(ENTITY_DISABLED) if an entity may not be used so."""
    if use in FORBIDDEN[status]:
        raise disabled(path, status)


def check_has_room(path: str, size: int, max_size: int) -> None:
    """Raise LinkRefusal(RESOURCE_LIMIT_EXCEEDED) if *size* bytes fill *max_size* megabytes."""
    if size >= max_size * _MEGABYTE:
        raise LinkRefusal(
            errors.RESOURCE_LIMIT_EXCEEDED,
            f"The maximum entity size has been reached or exceeded for '{path}'. Size of entity in bytes:{size}, "
            f"Max entity size in bytes:{max_size * _MEGABYTE}.  For more information please see "
            "https://aka.ms/ServiceBusExceptions .  QuotaType: EntitySize",
        )


def disabled(path: str, status: EntityStatus) -> Refusal:
    """Return the refusal for use of a disabled entity."""
    return Refusal(
        errors.ENTITY_DISABLED, f"Messaging entity '{path}' is currently disabled (its status is {status.value})."
    )


def taken(size: int, copies: int = 1) -> int:
    """Return the bytes that a message of *size* bytes takes with this number of copies."""
    return size if size <= _LARGE else size * (copies + 1)


class Payloads:
    """The messages of a topic, each with the number of its copies in the subscriptions."""

    def __init__(self) -> None:
        self.size = 0
        # By the sequence number in the topic: the copies, and the size of the largest one.
        self._stored: dict[int, tuple[int, int]] = {}

    def add(self, number: int, size: int) -> None:
        """Count a copy."""
        copies, largest = self._stored.get(number, (0, 0))
        self._set(number, copies + 1, max(largest, size))

    def remove(self, number: int) -> None:
        """Forget a copy; the last one leaves with the message."""
        copies, largest = self._stored[number]
        self._set(number, copies - 1, largest)

    def grow(self, number: int, size: int) -> None:
        """Count a copy that has changed."""
        copies, largest = self._stored[number]
        self._set(number, copies, max(largest, size))

    def _set(self, number: int, copies: int, size: int) -> None:
        before = self._stored.get(number)
        if before is not None:
            self.size -= taken(before[1], before[0])
        if copies:
            self._stored[number] = copies, size
            self.size += taken(size, copies)
        else:
            del self._stored[number]


class ReportedCount:
    """
    The number of some messages as it was at one moment of the last *lag* milliseconds.

    Clients that send and then ask read the number of before; so do those that have emptied an entity. The number of
    scheduled messages falls with every cancellation, also of a message that is not there, and so below 0.

    Sources: issues 254 and 653 of Azure/azure-service-bus, 26852 of Azure/azure-sdk-for-net.
    """

    __slots__ = ("_at", "_lag", "_messages", "_number", "_too_few")

    def __init__(self, messages: Sized, lag: int) -> None:
        self._messages = messages
        self._lag = lag
        self._number = 0
        self._at: int | None = None
        self._too_few = 0

    def look(self, now: int) -> None:
        """Count again if the last count is too old; call it before each change."""
        if self._at is None or not 0 <= now - self._at < self._lag:
            self._at, self._number = now, len(self._messages)

    def lose(self) -> None:
        """Report one less from now on."""
        self._too_few += 1

    def at(self, now: int) -> int:
        """Return the number that is reported."""
        self.look(now)
        return self._number - self._too_few
