"""The interface of the stores in which a de-duplicating receiver remembers processed messages."""

from datetime import timedelta
from enum import Enum
from typing import NamedTuple, Protocol, runtime_checkable


class State(Enum):
    """Why a message may not be claimed."""

    BUSY = "another receiver is processing a copy"
    DONE = "a copy has been processed"


class Claim(NamedTuple):
    """The right to process the copies of one message; its token is unique to this claim."""

    identity: str
    token: str


class Store(Protocol):
    """
    Claims and processed messages; a claim lasts until it is recorded or released.

    A local store answers at once and cannot fail. Asynchronous receivers call any other in a thread, and it may raise
    StoreUnavailable. Units: now in seconds since 1970.
    """

    @property
    def is_local(self) -> bool:
        """Whether the store is in the memory of this process."""

    def claim(self, identity: str, now: float) -> Claim | State:
        """Claim a message, atomically, or return why it cannot be claimed."""

    def record(self, claim: Claim, now: float) -> None:
        """Record that the message of a claim was processed; raises ClaimLost if the claim has expired."""

    def release(self, claim: Claim) -> None:
        """Release a claim, so that another copy or delivery may be processed; do nothing if it has expired."""


@runtime_checkable
class LeasedStore(Store, Protocol):
    """A store whose claims expire unless they are renewed, since a receiver may die with its claim."""

    @property
    def lease(self) -> timedelta:
        """How long a claim lasts after it was made or renewed."""

    def renew(self, claim: Claim, now: float) -> None:
        """Extend a claim by a lease from now; raises ClaimLost if it is no longer held."""
