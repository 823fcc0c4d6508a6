"""What the errors of the SDK about a send mean."""

from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from shared.access.identity import lacks_a_right
from shared.amqp.peer_error import shown_condition
from shared.ends.conditions import (
    DISABLED,
    FULL,
    MISSING,
    OVERLOADED,
    THROTTLED,
    TOO_LARGE,
    UNAUTHORIZED,
    UNREACHABLE,
    Reaction,
    as_error,
    reaction_to,
)
from shared.ends.service_bus.internals import condition_of
from shared.errors import BuswayError, TargetRefused, TargetUnavailable

# Errors that the SDK raises without the AMQP condition.
_REACTIONS: dict[type[Exception], Reaction] = {
    ClientAuthenticationError: UNAUTHORIZED,
    MessageSizeExceededError: TOO_LARGE,
    MessagingEntityDisabledError: DISABLED,
    MessagingEntityNotFoundError: MISSING,
    ServiceBusAuthenticationError: UNAUTHORIZED,
    ServiceBusAuthorizationError: UNAUTHORIZED,
    ServiceBusQuotaExceededError: FULL,
    ServiceBusServerBusyError: THROTTLED,
}


def translated(where: str, error: Exception) -> BuswayError:
    """Return the error of Busway for one that the SDK raised about the entity *where*."""
    condition = condition_of(error)
    seen = f"{type(error).__name__}" + (f" ({shown_condition(condition)})" if condition else "")
    kinds = (error, _inner(error))
    found = next((row for kind, row in _REACTIONS.items() if any(isinstance(e, kind) for e in kinds)), UNREACHABLE)
    raised = UNAUTHORIZED if lacks_a_right(error) else found
    return as_error(reaction_to(condition, raised), where, seen, error)


def is_not_the_messages_fault(answer: BuswayError | None) -> bool:
    """Return whether the target, or the way to it, is at fault."""
    return isinstance(answer, TargetUnavailable | TargetRefused)


def needs_a_new_link(answer: BuswayError | None) -> bool:
    """Return whether the sender may have lost its connection; it has not if the target answered."""
    if answer is None or could_not_process(answer):
        return False
    return is_not_the_messages_fault(answer) and not isinstance(
        getattr(answer, "__cause__", None), ServiceBusServerBusyError
    )


def could_not_process(answer: BuswayError) -> bool:
    """Return whether the service answered that it could not process what was sent, while the link goes on."""
    cause = answer.__cause__
    return isinstance(cause, Exception) and condition_of(cause) in OVERLOADED.conditions


def _inner(error: Exception) -> BaseException | None:
    """Return the error that the SDK wrapped: a failure to get a token comes as a plain ServiceBusError."""
    return error.inner_exception if isinstance(error, AzureError) else None
