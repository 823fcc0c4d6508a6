"""
What the platform does to a host: how it ends it, and what it does behind its back.

The defaults are those of the real host under SIGTERM (measured); everything else has to be asked for.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from host.annotations import annotations_of, number_of
from shared.ends.azure_amqp.raw_link import Delivery


class Ending(StrEnum):
    """How the platform ends a host."""

    STOP = "stop"
    """SIGTERM: for a while invocations may end, and the listeners go on receiving (measured)."""
    DRAIN = "drain"
    """A scale-in: the listeners stop at once, invocations have an hour (FN06: azure-webjobs-sdk 2795)."""
    RESTART = "restart"
    """A publish or a changed app setting: everything is killed at once (FN01: azure-functions-host 11828)."""


@dataclass(frozen=True, slots=True)
class Platform:
    """Its treatment of one host."""

    ending: Ending = Ending.STOP
    grace_seconds: float = 10.0
    drain_seconds: float = 3600.0
    restart_in_drain: float | None = None
    """When in a drain the host restarts: it listens again, and is killed at the end of the drain."""
    steal_after: float | None = None
    """After how many seconds of an invocation its partition gets a second owner, once."""
    partition_wait: float = 0.0
    """How long a restarted host waits for partitions: on Azure 120 to 150 s (FN24: azure-functions-host 11788)."""
    lose_every: int | None = None
    """Every n-th message is settled without an invocation: see `Losing`."""


MEASURED = Platform()


_log = logging.getLogger(__name__)


class Losing:
    """
    Takes every n-th message of all triggers, counted over the life of the host, and lets it be settled uninvoked.

    Azure's host may complete a message that it never passed to the worker (issue 11879 of azure-functions-host).
    Nothing records it but, here, the log: it is what the watch for losses has to find.
    """

    def __init__(self, every: int | None = None) -> None:
        """Take none without *every*."""
        self._every = every
        self._count = 0

    def divide(self, name: str, deliveries: Sequence[Delivery]) -> tuple[Sequence[Delivery], Sequence[Delivery]]:
        """Return the messages to pass to the function *name*, and those to settle without it."""
        if self._every is None:
            return deliveries, ()
        kept: list[Delivery] = []
        lost: list[Delivery] = []
        for delivery in deliveries:
            self._count += 1
            (kept if self._count % self._every else lost).append(delivery)
        for delivery in lost:
            number = number_of(annotations_of(delivery.payload), "x-opt-sequence-number")
            _log.warning("%s: lost on purpose: sequence number %d", name, number)
        return kept, lost
