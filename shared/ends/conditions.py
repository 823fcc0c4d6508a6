"""
The errors that the services return, and Busway's reaction: one table for all outputs, shown in docs/runbook.md.

Sources: Microsoft Learn, "AMQP 1.0 in Service Bus: error conditions" and "Service Bus throttling"; the SDKs' own maps.
The texts were seen in Azure/azure-sdk-for-python issues 19376 and 23487, for .NET 10266, in Azure/azure-service-bus
issue 451 and microsoft/AzureTRE issue 734.
"""

import re
from datetime import timedelta
from typing import NamedTuple

from shared.amqp.errors import AmqpError
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable, requested_wait

SIZE_EXCEEDED = "MessageSizeExceeded"
PROPERTY_SIZE_EXCEEDED = "PropertySizeExceeded"
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
OVERLOADED = Reaction(
    "overloaded",
    ("amqp:internal-error",),
    TargetUnavailable,
    "the target could not process what was sent",
    retry_after=timedelta(seconds=2),
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

REACTIONS = (THROTTLED, OVERLOADED, UNREACHABLE, FULL, DISABLED, MISSING, UNAUTHORIZED, TOO_LARGE, INVALID)
_CAUSES = {
    "Ip has been prevented": "the firewall of the namespace does not let Busway in (admit its addresses or its subnet)",
    "LocalAuthDisabled": "keys are switched off at the namespace, which leaves a managed identity",
    "ExpiredToken": "the token has expired (look at the clock of this machine, and at the end of a signature)",
    "InvalidSignature": "the key is wrong, or was made again",
    "InvalidAudience": "the token is for another entity or namespace",
    "'Send' claim(s) are required": "the right to send is missing",
    "'Listen' claim(s) are required": "the right to listen is missing",
    "'Manage' claim(s) are required": "the right to manage is missing",
    "maximum number of handles": "the connection has as many links as it may have",
    "tokens per connection": "the connection has as many tokens as it may have",
    "ConnectionsQuotaExceeded": "the namespace has as many connections as it may have",
}
"""The causes that answers name, in our words: the rest of an answer may quote what was sent."""
_WAIT = re.compile(r"wait (\d{1,3}) seconds")
_BY_CONDITION = {condition: reaction for reaction in REACTIONS for condition in reaction.conditions}


def reaction_to(condition: str | None, otherwise: Reaction = UNREACHABLE) -> Reaction:
    """Return the row of a condition, *otherwise* if there is no condition or no row for it."""
    return otherwise if condition is None else _BY_CONDITION.get(condition, otherwise)


def as_error(reaction: Reaction, where: str, seen: str, cause: BaseException) -> BuswayError:
    """Return the error of a row for the entity *where*; *seen* names the cause."""
    error: BuswayError
    # What the other end wrote decides, and is not shown.
    answer = cause.description if isinstance(cause, AmqpError) else str(cause)
    if reaction.error is MessageRejected:
        error = MessageRejected(reaction.reason, f"{where}: {reaction.text}, {seen}")
    elif reaction.error is TargetRefused:
        text = cause_in(answer) or reaction.text
        error = TargetRefused(f"{where}: the target refuses to take messages, {text}: {seen}")
    else:
        asked = _WAIT.search(answer) if reaction.retry_after is not None else None
        wait = reaction.retry_after if asked is None else timedelta(seconds=int(asked[1]))
        error = TargetUnavailable(f"{where}: {reaction.text}, {seen}", retry_after=wait)
    error.__cause__ = cause
    return error


def cause_in(answer: str) -> str | None:
    """Return the cause that an answer of a service names, in our words; None if it names none that is known."""
    return next((words for phrase, words in _CAUSES.items() if phrase in answer), None)


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
