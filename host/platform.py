"""
What the platform does to a host: how it ends it, and what it does behind its back.

The defaults are those of the real host under SIGTERM (measured); everything else has to be asked for.
"""

from dataclasses import dataclass
from enum import StrEnum


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
    lose_every: int | None = None
    """Every n-th message is settled without an invocation: see `host.losing`."""


MEASURED = Platform()
