"""A message as the application gets it, how the application may fail, and what an error of the SDK means."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from azure.servicebus.exceptions import (
    MessageAlreadySettled,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)

from busway_clients.errors import (
    DeadLetter,
    JournalError,
    JournalMalformed,
    JournalRefused,
    LeaseLost,
    StoreRefused,
    StoreUnavailable,
)
from busway_clients.sessions.settings import Source


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


LOG = logging.getLogger("busway_clients.sessions")

REFUSALS = (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
)
_LOST = (ServiceBusError, MessageAlreadySettled, ValueError)
"""Errors of a receiver that can no longer be used; the SDK raises ValueError after it has shut down by itself."""

LONGEST_TEXT = 2048
"""Service Bus takes 4,096 characters of 16 bits as a reason, and as many as a description."""

_NO_SESSIONS = ("not-allowed", "session")


def fault_of(error: Exception) -> Fault:
    """Return the failure of the application, with only the type of an unknown error: its text may contain a body."""
    if isinstance(error, DeadLetter):
        return Fault(_text(error.reason), _text(error.description), is_final=True)
    if isinstance(error, LeaseLost):
        # Raised by Delivery.check: the store was unavailable, or another worker has taken over.
        return Fault("LeaseLost", str(error), is_final=False, counts=False)
    return Fault(type(error).__name__, "The application failed each time it was given the message.", is_final=False)


@contextlib.contextmanager
def lock_lost_on_error() -> Iterator[None]:
    """Raise LockLost if a receiver can no longer settle; the message is delivered again, and has an entry by then."""
    try:
        yield
    except _LOST as error:
        raise LockLost(type(error).__name__) from error


def must_pause(error: Exception, source: Source, site: str) -> bool:
    """Log *error* and return whether a lane must wait before it continues; raises the error if it cannot."""
    match error:
        case OperationTimeoutError():
            # No session became available.
            return False
        case JournalError() | StoreRefused() if not isinstance(error, JournalMalformed):
            raise error
        case StoreUnavailable() | JournalMalformed():
            LOG.error("%s", error)
        case ServiceBusError():
            if refusal := refused(error, source, site):
                raise refusal from error
            LOG.warning("%s: %s: %s", site, source, type(error).__name__)
        case _:
            # A defect must not look like an empty queue.
            raise JournalError(f"{site}: {source}: {type(error).__name__}") from error
    return True


def _text(what: object) -> str:
    """Return *what* as valid text that is short enough for a dead-letter reason or description."""
    text = str(what).encode("utf-8", "replace").decode()
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def refused(error: ServiceBusError, source: Source, site: str) -> JournalRefused | None:
    """Return the error to raise if a retry cannot succeed, else None."""
    text = str(error).lower()
    if isinstance(error, REFUSALS):
        return JournalRefused(f"{site}: {source}: {type(error).__name__}, expected an entity and the right to listen")
    if all(word in text for word in _NO_SESSIONS):
        has = "sessions" if source.has_sessions else "no sessions"
        return JournalRefused(f"{site}: {source}: is not as it was named, with {has}; sessions are needed at all sites")
    return None
