"""
The errors of Busway, each named by its remedy.

BuswayError
├── ConfigError           fix the file
├── MessageRejected       reject the message
├── TargetUnavailable     try again
│   └── LockLost          try again, once the source has redelivered the batch
└── TargetRefused         call a person

The text says where, what was found and what was expected; it never has a body, a key or a connection string.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta


class BuswayError(Exception):
    """The root of every error that Busway raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing to fix in the configuration: the file and the path in it, what is wrong, and how to fix it."""

    path: str
    problem: str
    hint: str = ""

    def __str__(self) -> str:
        """Return the problem in one line, the hint last."""
        return f"{self.path}: {self.problem}" + (f" ({self.hint})" if self.hint else "")


class ConfigError(BuswayError):
    """The configuration has errors; raised once, with every problem."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        """Keep all problems; the text of the error has a line for each."""
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class MessageRejected(BuswayError):
    """
    The message is at fault and a retry cannot help.

    The reason is one word for machines, the description a sentence for people.
    """

    def __init__(self, reason: str, description: str) -> None:
        """Keep both parts for the message that goes to `rejects`."""
        super().__init__(f"{reason}: {description}")
        self.reason = reason
        self.description = description

    def by(self, editor: str) -> "MessageRejected":
        """Return the rejection with the name of the *editor* that raised it before the description."""
        named = MessageRejected(self.reason, f"{editor}: {self.description}")
        named.__cause__ = self
        return named


_LONGEST_WAIT = timedelta(days=1)


def requested_wait(retry_after: str | None) -> timedelta | None:
    """
    Return the wait that a service requests with the header Retry-After, a day at most; None without seconds in it.

    Source: RFC 9110, 10.2.3; its other form, a date, is not used by Azure.
    """
    if retry_after is None or not (retry_after.isascii() and retry_after.isdecimal()):
        return None
    # More digits may not fit into a timedelta, or not even into what Python converts.
    is_longer = len(retry_after) > len(f"{_LONGEST_WAIT.total_seconds():.0f}")
    return _LONGEST_WAIT if is_longer else min(timedelta(seconds=int(retry_after)), _LONGEST_WAIT)


class TargetUnavailable(BuswayError):
    """The network or the target is at fault (timeout, throttling) and a retry can help."""

    def __init__(self, description: str, *, retry_after: timedelta | None = None) -> None:
        """Keep the wait that the target requested, if any."""
        super().__init__(description)
        self.retry_after = retry_after


class LockLost(TargetUnavailable):
    """The source has released the lock on a message of the batch: what is sent now may be sent twice."""


class TargetRefused(BuswayError):
    """The target will not take messages until a person acts: authorization, missing entity, quota, too many rejects."""
