"""Checks of an entity's status and size, and the times of its use."""

from dataclasses import dataclass
from typing import Self

from busway_broker import errors
from busway_broker.config import EntityStatus
from busway_broker.core.times import milliseconds
from busway_broker.errors import LinkRefusal, Refusal
from shared.clock import Clock

_MEGABYTE = 1024 * 1024
_NOT_FOR_SENDING = frozenset((EntityStatus.DISABLED, EntityStatus.SEND_DISABLED))
_NOT_FOR_RECEIVING = frozenset((EntityStatus.DISABLED, EntityStatus.RECEIVE_DISABLED))


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


def check_can_send(path: str, status: EntityStatus) -> None:
    """Raise Refusal(ENTITY_DISABLED) if nothing may be sent to the entity."""
    if status in _NOT_FOR_SENDING:
        raise disabled(path, status)


def check_can_receive(path: str, status: EntityStatus) -> None:
    """Raise Refusal(ENTITY_DISABLED) if nothing may be received from the entity."""
    if status in _NOT_FOR_RECEIVING:
        raise disabled(path, status)


def check_can_manage(path: str, status: EntityStatus) -> None:
    """Raise Refusal(ENTITY_DISABLED) if the entity answers no requests."""
    if status is EntityStatus.DISABLED:
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
