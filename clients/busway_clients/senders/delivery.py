"""Messages to one namespace, in batches as large as its link allows; the steps of both senders."""

import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import MessageSizeExceededError, OperationTimeoutError, ServiceBusError

from busway_clients.errors import ClientsError, Unencodable, WrongUse
from busway_clients.senders.error_kinds import PROTOCOL_ERRORS, is_unavailable
from busway_clients.senders.messages import Identified, Prepared, copy_of
from busway_clients.senders.outcome import Delivery
from busway_clients.steps import Call, Steps

TIMEOUT = 60.0
# The largest message that Service Bus takes anywhere; what the entity takes, it says itself.
_LARGEST = 100 * 1024**2
_AMBIGUOUS = (*PROTOCOL_ERRORS, AttributeError)


class SdkSender(Protocol):
    """The methods that are used of an SDK's sender of either kind, or of a replacement."""

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> Any:  # noqa: ANN401 - what the SDK gives
        """Return a batch, or an awaitable of it."""

    def send_messages(self, message: Any, *, timeout: float | None = None) -> Any:  # noqa: ANN401 - what the SDK takes
        """Send, or return an awaitable that does."""


class Link(Protocol):
    """The SDK's sender of one namespace, and whether its last send has left it open."""

    sender: SdkSender
    is_open: bool

    def send(
        self, messages: Sequence[Identified], until: float, failed: Exception | None = None
    ) -> Delivery | Awaitable[Delivery]:
        """
        Send *messages* and return the result, or an awaitable of it.

        A link that an earlier send left open, and that fails now, is opened again once: the service closes idle links,
        which is not an outage. A caller that has already tried the open link passes the error as *failed*.
        Units: until as of `end_of`.
        """


def deliver(sender: SdkSender, messages: Sequence[Identified], until: float) -> Steps[Delivery]:
    """
    Send *messages* in their order and stop at the first error, so that what was accepted is the first of them.

    Each batch is accepted as a whole or not at all. Units: until as of `end_of`, retries of the SDK among it.
    """
    taken = 0
    try:
        if len(messages) == 1:
            yield _sending(sender, messages[0].message, left(until))
            return Delivery((messages[0].message_id,))
        for size, payload in (yield from _batches(sender, messages)):
            yield _sending(sender, payload, left(until))
            taken += size
    except Exception as error:  # noqa: BLE001 - whatever it is belongs to the outcome
        return undelivered(messages, error, taken)
    return Delivery(ids_of(messages))


def undelivered(messages: Sequence[Identified], error: Exception, taken: int = 0) -> Delivery:
    """Return the result for messages of which only the first *taken* were accepted."""
    ids = ids_of(messages)
    return Delivery(ids[:taken], ids[taken:], _understood(error, messages))


def is_lost(delivery: Delivery, until: float) -> bool:
    """Return whether a link has failed and may be opened again in the time that is left."""
    return delivery.error is not None and is_unavailable(delivery.error) and time.monotonic() < until


def joined(first: Delivery, second: Delivery) -> Delivery:
    """Return the result of two attempts, of which *second* sent what *first* had not delivered."""
    return second._replace(accepted=first.accepted + second.accepted)


def ids_of(messages: Sequence[Identified]) -> tuple[str, ...]:
    """Return the ids of messages."""
    return tuple([each.message_id for each in messages])


def end_of(timeout: float | None, began: float | None = None) -> float:
    """
    Return when a send is to end that begins now or has *began*, infinity without a timeout.

    Units: in seconds of time.monotonic().
    """
    return math.inf if timeout is None else (time.monotonic() if began is None else began) + timeout


def left(end: float) -> float | None:
    """Return the seconds that are left, None without a limit; raises OperationTimeoutError if none are left."""
    if end == math.inf:
        return None
    remaining = end - time.monotonic()
    if remaining <= 0:
        raise OperationTimeoutError(message="No time was left to send.")
    return remaining


def no_time(timeout: float) -> WrongUse:
    """Return the error of a timeout in which nothing can be sent."""
    return WrongUse(f"the timeout of a send: is {timeout} s, expected a positive one or None")


def encode(message: Prepared) -> None:
    """Encode a message to see whether the SDK can; raises Unencodable, MessageSizeExceededError."""
    try:
        ServiceBusMessageBatch(_LARGEST).add_message(copy_of(message))
    except MessageSizeExceededError:
        raise
    except Exception as error:
        raise _unencodable(error) from error


def _understood(error: Exception, messages: Sequence[Identified]) -> Exception:
    """Return an error of the SDK, or what is behind it: a message that cannot be sent, a sender that cannot be used."""
    if isinstance(error, ImportError):
        return _wrong_use("lacks a package", "the extra websockets for a connection over port 443", error)
    inner = error.inner_exception if type(error) is ServiceBusError else error
    if isinstance(inner, ClientsError | MessageSizeExceededError) or not isinstance(inner, _AMBIGUOUS):
        return error
    if len(messages) == 1:
        try:
            encode(messages[0].message)
        except (Unencodable, MessageSizeExceededError) as at_fault:
            return at_fault
    # What the SDK does not wrap was raised before it turned to the wire.
    return error if inner is not error else _wrong_use("refused the call", "one that is open", error)


def _wrong_use(seen: str, expected: str, error: Exception) -> WrongUse:
    wrong = WrongUse(f"the sender of the SDK: {seen} ({type(error).__name__}), expected {expected}")
    wrong.__cause__ = error
    return wrong


def _unencodable(error: Exception) -> Unencodable:
    # The SDK's error may quote the message.
    return Unencodable(
        f"a message: cannot be encoded by the SDK ({type(error).__name__}), expected values that AMQP has a type for"
    )


def _batches(sender: SdkSender, messages: Sequence[Identified]) -> Steps[list[tuple[int, Any]]]:
    """Return what is to be handed to the SDK, each with its number of messages; one that fills a batch goes alone."""
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
        # An entity for large messages takes alone what no batch can hold, and says so itself if it does not.
        batches.append((1, message))
        batch = None
    if batch is not None and len(batch):
        batches.append((len(batch), batch))
    return batches


def _fits(batch: Any, message: Prepared) -> bool:  # noqa: ANN401 - the SDK's batch
    try:
        batch.add_message(message)
    except MessageSizeExceededError:
        return False
    except Exception as error:
        raise _unencodable(error) from error
    return True


def _sending(sender: SdkSender, payload: Any, timeout: float | None) -> Call:  # noqa: ANN401 - a message or a batch
    send: Callable[..., Any] = sender.send_messages
    return Call(lambda: send(payload, timeout=timeout))
