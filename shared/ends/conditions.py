"""
The errors that the services return, and Busway's reaction: one table for all outputs, shown in docs/operations.md.

Sources: Microsoft Learn, "AMQP 1.0 in Service Bus: error conditions" and "Service Bus throttling"; the SDKs' own maps.
"""

from datetime import timedelta
from typing import NamedTuple

from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable, requested_wait

SIZE_EXCEEDED = "MessageSizeExceeded"
REFUSED = "TargetRefusedMessage"


class Reaction(NamedTuple):
    """
    One row: AMQP conditions, the error they become, and its text.

    Shape:  text is part of a sentence; reason is the code for a rejected message, retry_after the wait that the service
            asks for.
    """

    name: str
    conditions: tuple[str, ...]
    error: type[MessageRejected | TargetRefused | TargetUnavailable]
    text: str
    reason: str = REFUSED
    retry_after: timedelta | None = None


THROTTLED = Reaction(
    "throttled",
    ("com.microsoft:server-busy",),
    TargetUnavailable,
    "the target is busy",
    retry_after=timedelta(seconds=10),
)
FULL = Reaction("full", ("amqp:resource-limit-exceeded",), TargetRefused, "its quota is exceeded")
DISABLED = Reaction("disabled", ("com.microsoft:entity-disabled",), TargetRefused, "it is disabled")
MISSING = Reaction("missing", ("amqp:not-found",), TargetRefused, "it does not exist")
UNAUTHORIZED = Reaction(
    "unauthorized",
    ("amqp:unauthorized-access", "com.microsoft:auth-failed", "com.microsoft:publisher-revoked"),
    TargetRefused,
    "Busway may not send to it",
)
TOO_LARGE = Reaction(
    "too large",
    ("amqp:link:message-size-exceeded", "com.microsoft:message-size-exceeded"),
    MessageRejected,
    "the target refused the message as too large",
    SIZE_EXCEEDED,
)
INVALID = Reaction(
    "invalid",
    (
        "amqp:not-allowed",
        "amqp:decode-error",
        "amqp:invalid-field",
        "amqp:not-implemented",
        "com.microsoft:argument-error",
        "com.microsoft:argument-out-of-range",
        "com.microsoft:precondition-failed",
    ),
    MessageRejected,
    "the target refused the message",
)
UNREACHABLE = Reaction("unreachable", (), TargetUnavailable, "the target cannot be reached")

REACTIONS = (THROTTLED, UNREACHABLE, FULL, DISABLED, MISSING, UNAUTHORIZED, TOO_LARGE, INVALID)
_BY_CONDITION = {condition: each for each in REACTIONS for condition in each.conditions}


def reaction_to(condition: str | None, otherwise: Reaction = UNREACHABLE) -> Reaction:
    """Return the row of a condition, *otherwise* if there is no condition or no row for it."""
    return otherwise if condition is None else _BY_CONDITION.get(condition, otherwise)


def as_error(reaction: Reaction, where: str, seen: str, cause: BaseException) -> BuswayError:
    """Return the error of a row for the entity *where*; *seen* names the cause."""
    error: BuswayError
    if reaction.error is MessageRejected:
        error = MessageRejected(reaction.reason, f"{where}: {reaction.text}, {seen}")
    elif reaction.error is TargetRefused:
        error = TargetRefused(f"{where}: the target refuses to take messages, {reaction.text}: {seen}")
    else:
        error = TargetUnavailable(f"{where}: {reaction.text}, {seen}", retry_after=reaction.retry_after)
    error.__cause__ = cause
    return error


def after_requested_wait(reaction: Reaction, retry_after: str | None) -> Reaction:
    """Return the row of a passing error with the wait that the header Retry-After requests; other rows as they are."""
    wait = requested_wait(retry_after) if reaction.error is TargetUnavailable else None
    return reaction if wait is None else reaction._replace(retry_after=wait)


def about_the_link(error: BuswayError, where: str) -> BuswayError:
    """Return the error to raise for one that occurred before any message was sent: it cannot be a message's fault."""
    if not isinstance(error, MessageRejected):
        return error
    seen = error.description.removeprefix(f"{where}: {INVALID.text}, ")
    refused = TargetRefused(f"{where}: the target refuses the link, {seen}")
    refused.__cause__ = error.__cause__
    return refused
