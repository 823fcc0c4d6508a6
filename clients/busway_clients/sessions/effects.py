"""The requests that the work on a session yields; `consuming.py` performs them and sends back the answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from busway_clients.sessions.entries import Entry
from busway_clients.sessions.errors import LeaseLost
from busway_clients.sessions.leases import Lease
from busway_clients.sessions.received import Arrival


@dataclass
class HeldLease:
    """
    A lease of this worker; the work and the renewal write through it, one write at a time.

    *renewed* is the local monotonic time just before the last write that succeeded was sent.
    """

    partition: str
    lease: Lease
    version: str | None
    renewed: float = 0.0
    is_stale: bool = False
    is_lost: bool = False

    def is_fresh(self, now: float) -> bool:
        """Whether no other worker can have taken over yet."""
        return self.lease.is_held and not self.is_lost and now < self.renewed + self.lease.seconds

    def must_renew(self, now: float, seconds: float) -> bool:
        """Whether the last write is so old that the lease should be renewed."""
        return self.lease.is_held and now >= self.renewed + seconds

    def note_write(self, lease: Lease, version: str, started: float) -> None:
        """Note a write that succeeded."""
        self.lease, self.version, self.renewed = lease, version, started


@dataclass(frozen=True)
class Delivery:
    """
    A message as the application gets it.

    *token* grows with every owner of the session: a store that rejects lower tokens than the highest it has seen is
    protected from a worker that has lost the session. *attempt* starts at 1. *may_have_run* is true if an earlier
    attempt ended without a record, so that its effects may exist already.
    """

    message: Any
    message_id: str
    session_id: str | None
    attempt: int
    token: int
    may_have_run: bool
    is_held: Callable[[], bool] = field(repr=False)

    def check(self) -> None:
        """Raise LeaseLost if another worker may have taken over; call it just before an effect."""
        if not self.is_held():
            raise LeaseLost(f"message {self.message_id}: its lease has ended")


@dataclass(frozen=True)
class Receive:
    """Answered with Arrivals, or with none if no message arrived for a while."""

    count: int


@dataclass(frozen=True)
class Read:
    """Answered with a Record of the partition."""

    partition: str
    message_ids: Sequence[str]


@dataclass(frozen=True)
class Commit:
    """
    Write the lease of *held_lease* with *changes*, and *entries*, together; raises Conflict. Answered with nothing.

    A stale lease raises Conflict without being written, except by a renewal. A commit that *empties* gives all recent
    entries of the lease rows of their own.
    """

    held_lease: HeldLease
    changes: Mapping[str, Any]
    entries: Sequence[Entry]
    is_renewal: bool = False
    empties: bool = False


@dataclass(frozen=True)
class Register:
    """Insert *entries* and count them in another worker's *lease*, which has *version*; raises Conflict."""

    partition: str
    lease: Lease
    version: str | None
    entries: Sequence[Entry]


@dataclass(frozen=True)
class Run:
    """Give a message to the application; answered with None, or with the Fault it ended with."""

    delivery: Delivery


@dataclass(frozen=True)
class Fault:
    """
    A failure of the application.

    *is_final*: not tried again. *counts*: whether the attempt counts; not if the application is not the cause.
    """

    reason: str
    description: str
    is_final: bool
    counts: bool = True


@dataclass(frozen=True)
class Complete:
    """Complete a message at its namespace; raises LockLost."""

    arrival: Arrival


@dataclass(frozen=True)
class DeadLetter:
    """Dead-letter a message at its namespace; raises LockLost."""

    arrival: Arrival
    reason: str
    description: str


@dataclass(frozen=True)
class Wait:
    """Let time pass."""

    seconds: float


@dataclass(frozen=True)
class Log:
    """Log a warning."""

    text: str


Effect: TypeAlias = Receive | Read | Commit | Register | Run | Complete | DeadLetter | Wait | Log


class LockLost(Exception):
    """The lock of the message or session is lost; the namespace delivers it again."""
