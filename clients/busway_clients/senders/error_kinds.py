"""
The kind of an error of a send: the namespace is unavailable, the entity refuses messages for now, or the message is at
fault.

"Unavailable" follows the paired namespaces of the .NET SDK: a non-transient MessagingException or a TimeoutException
moves sending to the other namespace; a refused identity or a busy server does not.
"""

import struct
from enum import Enum

from azure.core.exceptions import AzureError, ClientAuthenticationError
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from busway_clients.errors import Unencodable


class ErrorKind(Enum):
    """The remedy for an error: another namespace, a later retry, or another message."""

    UNAVAILABLE = "the namespace cannot be reached"
    REFUSED = "the entity accepts no messages at the moment"
    AT_FAULT = "the message cannot be sent"


# In the order of the checks: some of the classes derive from others.
_CLASSES: tuple[tuple[type[BaseException], ErrorKind], ...] = (
    (ServiceBusConnectionError, ErrorKind.UNAVAILABLE),
    (ServiceBusCommunicationError, ErrorKind.UNAVAILABLE),
    (OperationTimeoutError, ErrorKind.UNAVAILABLE),
    (ServiceBusServerBusyError, ErrorKind.REFUSED),
    (ServiceBusAuthenticationError, ErrorKind.REFUSED),
    (ServiceBusAuthorizationError, ErrorKind.REFUSED),
    (ClientAuthenticationError, ErrorKind.REFUSED),
    (MessagingEntityNotFoundError, ErrorKind.REFUSED),
    (MessagingEntityDisabledError, ErrorKind.REFUSED),
    (ServiceBusQuotaExceededError, ErrorKind.REFUSED),
    (MessageSizeExceededError, ErrorKind.AT_FAULT),
    (OSError, ErrorKind.UNAVAILABLE),
    (EOFError, ErrorKind.UNAVAILABLE),
    (Unencodable, ErrorKind.AT_FAULT),
)

# The SDK wraps these when the peer does not speak AMQP (a web page, another protocol) or a host name is invalid. It
# wraps the same errors for a message that it cannot encode; the sender distinguishes the two, and raises Unencodable.
PROTOCOL_ERRORS = (ValueError, TypeError, LookupError, struct.error)

# The SDK raises a plain ServiceBusError for these conditions.
_CONDITIONS = {
    "amqp:internal-error": ErrorKind.UNAVAILABLE,
    "amqp:connection:forced": ErrorKind.UNAVAILABLE,
    "amqp:connection:redirect": ErrorKind.UNAVAILABLE,
    "amqp:link:redirect": ErrorKind.UNAVAILABLE,
    "amqp:link:detach-forced": ErrorKind.UNAVAILABLE,
    "com.microsoft:container-close": ErrorKind.UNAVAILABLE,
    "com.microsoft:operation-cancelled": ErrorKind.UNAVAILABLE,
    "amqp:decode-error": ErrorKind.AT_FAULT,
    "amqp:invalid-field": ErrorKind.AT_FAULT,
    "amqp:not-allowed": ErrorKind.AT_FAULT,
    "amqp:not-implemented": ErrorKind.AT_FAULT,
    "amqp:precondition-failed": ErrorKind.AT_FAULT,
    "com.microsoft:argument-error": ErrorKind.AT_FAULT,
    "com.microsoft:argument-out-of-range": ErrorKind.AT_FAULT,
    "com.microsoft:message-size-exceeded": ErrorKind.AT_FAULT,
}


def classify(error: BaseException) -> ErrorKind:
    """
    Return the kind of an error of a send.

    An unknown error is REFUSED: switching namespaces or holding a message needs a known reason.
    """
    inner = error.inner_exception if isinstance(error, AzureError) else None
    condition = condition_of(error)
    if type(error) is ServiceBusError and condition in _CONDITIONS:
        return _CONDITIONS[condition]
    for candidate in (error, inner):
        for kind, error_kind in _CLASSES:
            if isinstance(candidate, kind):
                return error_kind
    return ErrorKind.UNAVAILABLE if isinstance(inner, PROTOCOL_ERRORS) else ErrorKind.REFUSED


def is_unavailable(error: BaseException) -> bool:
    """Return whether another namespace should be tried after an error."""
    return classify(error) is ErrorKind.UNAVAILABLE


def condition_of(error: BaseException) -> str | None:
    """Return the AMQP condition of an error, None if it has no condition."""
    inner = error.inner_exception if isinstance(error, AzureError) else None
    condition = getattr(inner, "condition", None)
    named = getattr(condition, "value", condition)
    return named.decode("ascii", "replace") if isinstance(named, bytes) else named


def describe(error: BaseException) -> str:
    """Return the class and AMQP condition of an error, without its text, which may quote a message."""
    condition = condition_of(error)
    return type(error).__name__ + (f" ({condition})" if condition else "")
