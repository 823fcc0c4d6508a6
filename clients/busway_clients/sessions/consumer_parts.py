"""What both shells, synchronous and not, share: names, what errors of the SDK mean, what the application's do."""

import contextlib
import logging
import os
import socket
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace

from azure.servicebus.exceptions import (
    MessageAlreadySettled,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)

from busway_clients.sessions.effects import Fault, LockLost
from busway_clients.sessions.errors import (
    JournalError,
    JournalMalformed,
    JournalRefused,
    JournalUnavailable,
    LeaseLost,
    Unprocessable,
)
from busway_clients.sessions.settings import Settings

LOG = logging.getLogger("busway_clients.sessions")

REFUSALS = (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
)
_LOST = (ServiceBusError, MessageAlreadySettled, ValueError)
"""What the SDK says at a receiver that is of no more use: a ValueError of one that it has shut down by itself."""

LOCK_RENEWAL_SECONDS = 24 * 3600.0
"""For how long the locks of Service Bus are renewed; a message is held while another region works on its copy."""
LONGEST_TOLD = 2048
"""Service Bus takes 4,096 characters of 16 bits as a reason, and as many as a description."""
BEATS = 3
"""How often within the time of a heartbeat it is asked whether one is due."""

_NO_SESSIONS = ("not-allowed", "session")


@dataclass(frozen=True)
class Source:
    """The queue, or subscription of a topic, whose messages are processed, and whether it has sessions."""

    entity: str
    subscription: str | None = None
    has_sessions: bool = True

    def __str__(self) -> str:
        return self.entity if self.subscription is None else f"{self.entity}/Subscriptions/{self.subscription}"


def settings_for(source: Source, settings: Settings) -> Settings:
    """Return *settings* for *source*, by which the application is known; raises JournalRefused for what it has not."""
    if settings.lock == "session" and not source.has_sessions:
        raise JournalRefused(f"{source}: has no sessions, expected some, as lock is 'session'")
    # Service Bus tells names apart by letters alone, not by their case.
    return replace(settings, application=settings.application or str(source).lower())


def unique_name(site: str) -> str:
    """Return a name that no other worker has or gets."""
    return f"{site}/{socket.gethostname()}/{os.getpid()}/{uuid.uuid4().hex[:8]}"


def fault_of(error: Exception) -> Fault:
    """Return how the application has failed; of a foreign error only its type, since its text may hold a body."""
    if isinstance(error, Unprocessable):
        return Fault(_told(error.reason), _told(error.description), is_final=True)
    if isinstance(error, LeaseLost):
        # Delivery.check has raised it: the store was away, or someone has taken over.
        return Fault("LeaseLost", str(error), is_final=False, counts=False)
    return Fault(type(error).__name__, "The application failed each time it was given the message.", is_final=False)


@contextlib.contextmanager
def receiving() -> Iterator[None]:
    """Raise LockLost for what a receiver cannot do: the message comes again, and the journal knows of it then."""
    try:
        yield
    except _LOST as error:
        raise LockLost(type(error).__name__) from error


def is_worth_a_pause(error: Exception, source: Source, site: str) -> bool:
    """Whether to wait before a lane goes on after *error*, which is logged; raises JournalError where it cannot."""
    match error:
        case OperationTimeoutError():
            # No session has come for a while.
            return False
        case JournalUnavailable() | JournalMalformed():
            LOG.error("%s", error)
        case JournalError():
            raise error
        case ServiceBusError():
            if refusal := refused(error, source, site):
                raise refusal from error
            LOG.warning("%s: %s: %s", site, source, type(error).__name__)
        case _:
            # A defect must not look like an empty queue.
            raise JournalError(f"{site}: {source}: {type(error).__name__}") from error
    return True


def _told(what: object) -> str:
    """Return *what* as a text that can be sent, and is not too long for the dead-letter queue."""
    text = str(what).encode("utf-8", "replace").decode()
    return text if len(text) <= LONGEST_TOLD else text[: LONGEST_TOLD - 1] + "…"


def refused(error: ServiceBusError, source: Source, site: str) -> JournalRefused | None:
    """Return what to raise for an error that trying again does not help, else None."""
    text = str(error).lower()
    if isinstance(error, REFUSALS):
        return JournalRefused(f"{site}: {source}: {type(error).__name__}, expected an entity and the right to listen")
    if all(word in text for word in _NO_SESSIONS):
        has = "sessions" if source.has_sessions else "no sessions"
        return JournalRefused(f"{site}: {source}: is not as it was named, with {has}; sessions are needed at all sites")
    return None
