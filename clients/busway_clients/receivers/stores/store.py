"""Where a de-duplicating receiver remembers what has been processed."""

from datetime import timedelta
from enum import Enum
from typing import NamedTuple, Protocol, runtime_checkable


class State(Enum):
    """Why a message may not be claimed."""

    BUSY = "another receiver is processing a copy"
    DONE = "a copy has been processed"


class Claim(NamedTuple):
    """The right to process the copies of one message; the token tells this claim from any later one."""

    identity: str
    token: str


class Store(Protocol):
    """
    Claims and what they have led to; a claim lasts until it is recorded or given back.

    An `is_local` one answers at once and cannot fail; any other is asked in a thread by asynchronous receivers, and
    raises StoreUnavailable. Units: now in seconds since 1970.
    """

    @property
    def is_local(self) -> bool:
        """Whether the store is in the memory of this process."""

    def claim(self, identity: str, now: float) -> Claim | State:
        """Claim a message, of all who ask one at a time; or say why not."""

    def record(self, claim: Claim, now: float) -> None:
        """Record that the message of a claim has been processed; raises ClaimLost where the claim has run out."""

    def release(self, claim: Claim) -> None:
        """Give a claim back, so that another copy or delivery may be processed; nothing if it has run out."""


@runtime_checkable
class LeasedStore(Store, Protocol):
    """A store whose claims run out unless they are renewed, since a receiver may have died with its claim."""

    @property
    def lease(self) -> timedelta:
        """How long a claim lasts from when it was made or renewed."""

    def renew(self, claim: Claim, now: float) -> None:
        """Let a claim last for another lease from now; raises ClaimLost if it is no longer held."""
