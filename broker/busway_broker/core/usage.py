"""Checks of an entity's status and size, and the times of its use."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Self

from busway_broker import errors
from busway_broker.config import EntityStatus
from busway_broker.core.times import milliseconds
from busway_broker.errors import LinkRefusal, Refusal
from shared.clock import Clock

_MEGABYTE = 1024 * 1024


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
