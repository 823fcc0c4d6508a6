"""A message as the application gets it, and how it may fail."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from busway_clients.sessions.errors import LeaseLost


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
class Fault:
    """
    A failure of the application.

    *is_final*: not tried again. *counts*: whether the attempt counts; not if the application is not the cause.
    """

    reason: str
    description: str
    is_final: bool
    counts: bool = True


class LockLost(Exception):
    """The lock of the message or session is lost; the namespace delivers it again."""
