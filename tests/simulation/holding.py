"""What an invocation holds: its messages, and their locks as far as it can know them."""

from contextvars import ContextVar
from dataclasses import dataclass

from shared.errors import BuswayError, LockLost

SESSION = ""
"""The name of the lock of a session."""
# A message is locked before the invocation begins, and clocks differ.
_LATE_SECONDS = 3.0
# An order is read again after five seconds, and that may take two.
_UNREAD_SECONDS = 7.5
# One refusal may be a mistake of the service.
_MOST_REFUSALS = 1


@dataclass
class Lock:
    """One lock."""

    names: set[str]
    """Of the messages under it those on which no others depend."""
    ends_at: float
    refusals: int = 0
    """How often its renewal was refused as lost, in a row."""


@dataclass(frozen=True)
class Holding:
    """What one invocation of a task holds, from the time at which it *began*."""

    task: str
    began: float
    seconds: float
    """How long a lock lasts."""
    locks: dict[str, Lock]

    def note(self, lock: str, now: float, error: BuswayError | None) -> None:
        """Note the answer to a renewal that was asked for *now*, which may be an *error*."""
        held = self.locks.get(lock)
        if held is None:
            return
        if isinstance(error, LockLost):
            held.refusals += 1
        elif error is None:
            held.refusals, held.ends_at = 0, now + self.seconds

    def unlocked(self, names: set[str], now: float) -> set[str]:
        """Return which of these messages it must know as unlocked."""
        gone = [lock for lock in self.locks.values() if lock.refusals > _MOST_REFUSALS or _is_over(lock, now)]
        return {name for lock in gone for name in names if name.partition("/")[0] in lock.names}

    def must_wait(self, paused_at: float | None) -> bool:
        """Return whether it must wait, because its task was paused long before it began."""
        return paused_at is not None and self.began > paused_at + _UNREAD_SECONDS


def _is_over(lock: Lock, now: float) -> bool:
    return now > lock.ends_at + _LATE_SECONDS


HOLDING: ContextVar[Holding | None] = ContextVar("holding", default=None)
"""What the invocation holds in whose context something happens."""
