"""Which entity a consumer reads, and the settings and name that follow from it."""

import os
import socket
import uuid
from dataclasses import dataclass, replace

from busway_clients.sessions.errors import JournalRefused
from busway_clients.sessions.settings import Settings


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
