"""The settings of a consumer with a journal, and the entity that it reads."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from busway_clients.errors import JournalRefused

APPLICATION = "Application"
_LARGEST_BATCH = 40
"""Registered, started and finished messages and the lease must fit into one transaction of 100 rows."""
_POSITIVE = ("more than 0", lambda value: value > 0)
_NOT_NEGATIVE = ("0 or more", lambda value: value >= 0)


@dataclass(frozen=True)
class Settings:
    """
    How messages are processed exactly once.

    The first five must be the same at all sites of a journal; the journal records them and refuses a consumer with
    different ones.

    *application*: the owner of the journal, by default the queue or subscription. Each application needs its own
    journal. Set it if the entity has different names at different sites.
    *lock*: "session" locks a whole session for one worker and keeps its order; "message" locks each message
    individually, for entities without sessions or if order does not matter.
    *identity*: the application property by which copies are recognised; without it the message id.
    *number*: the application property with the consecutive number of a message in its session, from *first_number*
    on. With it no message is processed before the one numbered one less, wherever that is.
    *lease_seconds*: how long a worker that stops responding keeps its lease.
    *head_start_seconds*: 0 in the primary region; elsewhere the time for which new messages are left to it.
    *poll_seconds*: how often the journal is read while a lane waits.
    *patience_seconds*: how long a session that cannot be processed now is held before the next one is accepted.
    *wait_for_earlier_seconds*: how long a message waits for an earlier one that is known to be missing; None for no
    limit.
    *late*: what to do with a message if one with a higher number is already finished in its session.
    *max_attempts*: how often the application is given a message before it is faulted.
    *batch*: how many messages of a session are received together.
    *record_every*: how many of them are recorded in one write. If a worker dies, up to this many messages may have been
    processed without a record, and are processed again.
    *idle_seconds*: how long an empty session is kept.
    *accept_seconds*: how long one request for a session waits, and so how long stopping may take.
    """

    application: str | None = None
    lock: Literal["session", "message"] = "session"
    identity: str | None = None
    number: str | None = None
    first_number: int = 1
    lease_seconds: float = 30.0
    head_start_seconds: float = 0.0
    poll_seconds: float = 1.0
    patience_seconds: float = 60.0
    wait_for_earlier_seconds: float | None = None
    late: Literal["dead-letter", "process"] = "dead-letter"
    max_attempts: int = 3
    retry_seconds: float = 1.0
    batch: int = 20
    record_every: int = 1
    idle_seconds: float = 1.0
    accept_seconds: float = 5.0

    def __post_init__(self) -> None:
        rules: dict[str, tuple[str, Callable[[Any], bool]]] = {
            "lock": ("'session' or 'message'", lambda value: value in ("session", "message")),
            "lease_seconds": _POSITIVE,
            "head_start_seconds": _NOT_NEGATIVE,
            "poll_seconds": _POSITIVE,
            "patience_seconds": _POSITIVE,
            "wait_for_earlier_seconds": ("None, or 0 or more", lambda value: value is None or value >= 0),
            "late": ("'dead-letter' or 'process'", lambda value: value in ("dead-letter", "process")),
            "max_attempts": ("1 or more", lambda value: value >= 1),
            "retry_seconds": _NOT_NEGATIVE,
            "batch": (f"1 to {_LARGEST_BATCH}", lambda value: 1 <= value <= _LARGEST_BATCH),
            "record_every": (f"1 to batch, which is {self.batch}", lambda value: 1 <= value <= self.batch),
            "idle_seconds": _POSITIVE,
            "accept_seconds": _POSITIVE,
        }
        problems = [
            f"{name} is {getattr(self, name)!r}, expected {expected}"
            for name, (expected, is_valid) in rules.items()
            if not is_valid(getattr(self, name))
        ]
        if self.lock == "message" and self.number is not None:
            problems.append("number is set, expected none with lock='message', which keeps no order")
        if problems:
            raise JournalRefused("Settings: " + "; ".join(problems))

    @property
    def heartbeat_seconds(self) -> float:
        """The age of the last write at which the lease is renewed."""
        return self.lease_seconds / 3

    def agreed(self) -> dict[str, str | int]:
        """Return the settings that all sites of a journal must share, as properties of a row."""
        return {
            APPLICATION: self.application or "",
            "Lock": self.lock,
            "Identity": self.identity or "",
            "Number": self.number or "",
            "FirstNumber": str(self.first_number),
        }


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
