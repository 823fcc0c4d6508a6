"""The steps that send messages to one namespace, in batches as large as its link allows."""

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import MessageSizeExceededError, OperationTimeoutError, ServiceBusError

from busway_clients.errors import ClientsError, Unencodable, WrongUse
from busway_clients.senders.error_kinds import PROTOCOL_ERRORS, is_unavailable
from busway_clients.senders.messages import OutgoingMessage, SdkMessage, copy_of
from busway_clients.senders.outcome import Delivery
from busway_clients.steps import Call, Steps

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


class Link(Protocol):
    """The SDK's sender of one namespace, and whether it was still open after its last send."""

    sender: SdkSender
    is_open: bool

    def send(
        self, messages: Sequence[OutgoingMessage], until: float, failed: Exception | None = None
    ) -> Delivery | Awaitable[Delivery]:
        """
        Send *messages* and return the result, or an awaitable of it.

        If a link was open and fails now, it is reopened once: the service closes idle links, which is not an outage.
        A caller that has already tried the open link passes its error as *failed*. Units: until as in `deadline_of`.
        """


def deliver(sender: SdkSender, messages: Sequence[OutgoingMessage], until: float) -> Steps[Delivery]:
    """
    Send *messages* in order and stop at the first error, so that the accepted messages are always the first ones.

    Each batch is accepted as a whole or not at all. Units: until as in `deadline_of`; it includes the SDK's retries.
    """
    taken = 0
    try:
        if len(messages) == 1:
            yield _send_call(sender, messages[0].message, seconds_left(until))
            return Delivery((messages[0].message_id,))
        for size, payload in (yield from _batches(sender, messages)):
            yield _send_call(sender, payload, seconds_left(until))
            taken += size
    except Exception as error:  # noqa: BLE001 - the outcome reports every error
        return failed_delivery(messages, error, taken)
    return Delivery(ids_of(messages))


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
    return tuple([each.message_id for each in messages])


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


def _batches(sender: SdkSender, messages: Sequence[OutgoingMessage]) -> Steps[list[tuple[int, Any]]]:
    """Return what to pass to the SDK, with the number of messages in each; one too large for a batch is sent alone."""
    batches: list[tuple[int, Any]] = []
    batch = None
    for _, message in messages:
        if batch is None:
            batch = yield Call(sender.create_message_batch)
        if _fits(batch, message):
            continue
        if len(batch):
            batches.append((len(batch), batch))
            batch = yield Call(sender.create_message_batch)
            if _fits(batch, message):
                continue
        # An entity for large messages may accept alone what does not fit into a batch; if not, it reports the error.
        batches.append((1, message))
        batch = None
    if batch is not None and len(batch):
        batches.append((len(batch), batch))
    return batches


def _fits(batch: Any, message: SdkMessage) -> bool:  # noqa: ANN401 - the SDK's batch
    try:
        batch.add_message(message)
    except MessageSizeExceededError:
        return False
    except Exception as error:
        raise _unencodable(error) from error
    return True


def _send_call(sender: SdkSender, payload: Any, timeout: float | None) -> Call:  # noqa: ANN401 - a message or a batch
    send: Callable[..., Any] = sender.send_messages
    return Call(lambda: send(payload, timeout=timeout))
