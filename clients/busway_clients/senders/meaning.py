"""
What an error of a send means: the service cannot be reached, the entity takes nothing at present, or the message is
at fault.

The first row is that of paired namespaces: there a non-transient MessagingException or a TimeoutException moves
sending to the other namespace, and neither a refused identity nor a busy server does. The classes are those of
azure-servicebus.
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


class Meaning(Enum):
    """What is to be made of an error: another namespace, a later time, or another message."""

    UNAVAILABLE = "the namespace cannot be reached"
    REFUSED = "the entity takes no messages at present"
    AT_FAULT = "the message cannot be sent"


# In the order in which they are asked: the SDK wraps what it does not know, and some classes are kinds of others.
_CLASSES: tuple[tuple[type[BaseException], Meaning], ...] = (
    (ServiceBusConnectionError, Meaning.UNAVAILABLE),
    (ServiceBusCommunicationError, Meaning.UNAVAILABLE),
    (OperationTimeoutError, Meaning.UNAVAILABLE),
    (ServiceBusServerBusyError, Meaning.REFUSED),
    (ServiceBusAuthenticationError, Meaning.REFUSED),
    (ServiceBusAuthorizationError, Meaning.REFUSED),
    (ClientAuthenticationError, Meaning.REFUSED),
    (MessagingEntityNotFoundError, Meaning.REFUSED),
    (MessagingEntityDisabledError, Meaning.REFUSED),
    (ServiceBusQuotaExceededError, Meaning.REFUSED),
    (MessageSizeExceededError, Meaning.AT_FAULT),
    (OSError, Meaning.UNAVAILABLE),
    (EOFError, Meaning.UNAVAILABLE),
    (Unencodable, Meaning.AT_FAULT),
)

# What the SDK wraps when it cannot make sense of a peer: a web page, another protocol, a host name that is none. When
# it cannot make sense of a message it wraps the same ones; a sender looks which it was, and says Unencodable then.
SENSELESS = (ValueError, TypeError, LookupError, struct.error)

# What the SDK knows no class for comes as a plain ServiceBusError.
_CONDITIONS = {
    "amqp:internal-error": Meaning.UNAVAILABLE,
    "amqp:connection:forced": Meaning.UNAVAILABLE,
    "amqp:connection:redirect": Meaning.UNAVAILABLE,
    "amqp:link:redirect": Meaning.UNAVAILABLE,
    "amqp:link:detach-forced": Meaning.UNAVAILABLE,
    "com.microsoft:container-close": Meaning.UNAVAILABLE,
    "com.microsoft:operation-cancelled": Meaning.UNAVAILABLE,
    "amqp:decode-error": Meaning.AT_FAULT,
    "amqp:invalid-field": Meaning.AT_FAULT,
    "amqp:not-allowed": Meaning.AT_FAULT,
    "amqp:not-implemented": Meaning.AT_FAULT,
    "amqp:precondition-failed": Meaning.AT_FAULT,
    "com.microsoft:argument-error": Meaning.AT_FAULT,
    "com.microsoft:argument-out-of-range": Meaning.AT_FAULT,
    "com.microsoft:message-size-exceeded": Meaning.AT_FAULT,
}


def meaning_of(error: BaseException) -> Meaning:
    """
    Return what an error of a send means.

    What is in no table is REFUSED: a switch of namespaces, or a message set aside, needs a reason that is known.
    """
    inner = error.inner_exception if isinstance(error, AzureError) else None
    condition = condition_of(error)
    if type(error) is ServiceBusError and condition in _CONDITIONS:
        return _CONDITIONS[condition]
    for candidate in (error, inner):
        for kind, meaning in _CLASSES:
            if isinstance(candidate, kind):
                return meaning
    return Meaning.UNAVAILABLE if isinstance(inner, SENSELESS) else Meaning.REFUSED


def is_unavailable(error: BaseException) -> bool:
    """Tell whether an error means that another namespace should be tried."""
    return meaning_of(error) is Meaning.UNAVAILABLE


def condition_of(error: BaseException) -> str | None:
    """Return the AMQP condition that the service named, None where it named none."""
    inner = error.inner_exception if isinstance(error, AzureError) else None
    condition = getattr(inner, "condition", None)
    named = getattr(condition, "value", condition)
    return named.decode("ascii", "replace") if isinstance(named, bytes) else named


def told(error: BaseException) -> str:
    """Return an error in few words that quote nothing: its class and the condition."""
    condition = condition_of(error)
    return type(error).__name__ + (f" ({condition})" if condition else "")
