"""The result of sending messages to one namespace, and the time that is left for it."""

import math
import time
from collections.abc import Sequence
from typing import Any, Protocol

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import MessageSizeExceededError, OperationTimeoutError, ServiceBusError

from busway_clients.errors import ClientsError, Unencodable, WrongUse
from busway_clients.senders.error_kinds import PROTOCOL_ERRORS, is_unavailable
from busway_clients.senders.messages import OutgoingMessage, SdkMessage, copy_of
from busway_clients.senders.outcome import Delivery

TIMEOUT = 60.0
# The largest message of any tier of Service Bus; the entity may have a lower limit and reports it itself.
_LARGEST = 100 * 1024**2
_AMBIGUOUS = (*PROTOCOL_ERRORS, AttributeError)


class SdkSender(Protocol):
    """The methods used of the SDK's sender, synchronous or asynchronous, or of a replacement."""

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> Any:  # noqa: ANN401 - the SDK's type
        """Return a batch, or an awaitable of it."""

    def send_messages(self, message: Any, *, timeout: float | None = None) -> Any:  # noqa: ANN401 - the SDK's type
        """Send, or return an awaitable that does."""


def failed_delivery(messages: Sequence[OutgoingMessage], error: Exception, taken: int = 0) -> Delivery:
    """Return the result for messages of which only the first *taken* were accepted."""
    ids = ids_of(messages)
    return Delivery(ids[:taken], ids[taken:], _root_cause(error, messages))


def is_lost(delivery: Delivery, until: float) -> bool:
    """Return whether a link has failed and there is time left to reopen it."""
    return delivery.error is not None and is_unavailable(delivery.error) and time.monotonic() < until


def joined(first: Delivery, second: Delivery) -> Delivery:
    """Return the result of two attempts, where *second* sent what *first* had not delivered."""
    return second._replace(accepted=first.accepted + second.accepted)


def ids_of(messages: Sequence[OutgoingMessage]) -> tuple[str, ...]:
    """Return the ids of messages."""
    return tuple([message.message_id for message in messages])


def deadline_of(timeout: float | None, began: float | None = None) -> float:
    """
    Return the deadline of a send that started at *began*, by default now; infinity without a timeout.

    Units: seconds of time.monotonic().
    """
    return math.inf if timeout is None else (time.monotonic() if began is None else began) + timeout


def seconds_left(end: float) -> float | None:
    """Return the seconds until the deadline *end*, None if it is infinite; raises OperationTimeoutError after it."""
    if end == math.inf:
        return None
    remaining = end - time.monotonic()
    if remaining <= 0:
        raise OperationTimeoutError(message="The timeout ended before the send started.")
    return remaining


def invalid_timeout(timeout: float) -> WrongUse:
    """Return the error for a timeout that is not positive."""
    return WrongUse(f"timeout of a send: got {timeout} s, expected more than 0, or None")


def encode(message: SdkMessage) -> None:
    """Check that the SDK can encode a message; raises Unencodable, MessageSizeExceededError."""
    try:
        ServiceBusMessageBatch(_LARGEST).add_message(copy_of(message))
    except MessageSizeExceededError:
        raise
    except Exception as error:
        raise _unencodable(error) from error


def _root_cause(error: Exception, messages: Sequence[OutgoingMessage]) -> Exception:
    """Return *error*, or its cause if that is a message that cannot be sent or a sender that cannot be used."""
    if isinstance(error, ImportError):
        return _wrong_use("a package is missing", "the extra websockets for a connection over port 443", error)
    inner = error.inner_exception if type(error) is ServiceBusError else error
    if isinstance(inner, ClientsError | MessageSizeExceededError) or not isinstance(inner, _AMBIGUOUS):
        return error
    if len(messages) == 1:
        try:
            encode(messages[0].message)
        except (Unencodable, MessageSizeExceededError) as at_fault:
            return at_fault
    # The SDK wraps errors of the connection; one that is not wrapped was raised before anything was sent.
    return error if inner is not error else _wrong_use("rejected the call", "an open sender", error)


def _wrong_use(seen: str, expected: str, error: Exception) -> WrongUse:
    wrong = WrongUse(f"the SDK's sender: {seen} ({type(error).__name__}), expected {expected}")
    wrong.__cause__ = error
    return wrong


def _unencodable(error: Exception) -> Unencodable:
    # The SDK's error may quote the message.
    return Unencodable(
        f"a message: the SDK cannot encode it ({type(error).__name__}), expected only values that have an AMQP type"
    )


def fits(batch: Any, message: SdkMessage) -> bool:  # noqa: ANN401 - the SDK's batch
    """Add *message* to *batch* and return True, or False if it has no room; raises Unencodable."""
    try:
        batch.add_message(message)
    except MessageSizeExceededError:
        return False
    except Exception as error:
        raise _unencodable(error) from error
    return True
