"""A send: its messages, what its errors mean for them, and the time that is left for it."""

import math
import time
from collections.abc import Sequence
from typing import Any

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from busway_clients.errors import ClientsError, SendFailed, Unencodable, WrongUse
from busway_clients.senders.error_kinds import PROTOCOL_ERRORS, ErrorKind, classify, describe
from busway_clients.senders.messages import Messages, OutgoingMessage, SdkMessage, SessionOf, copy_of, with_ids
from busway_clients.senders.outcome import Delivery, Outcome

TIMEOUT = 60.0
# The largest message of any tier of Service Bus; the entity may have a lower limit and reports it itself.
_LARGEST = 100 * 1024**2
_AMBIGUOUS = (*PROTOCOL_ERRORS, AttributeError)


def failed_delivery(messages: Sequence[OutgoingMessage], error: Exception, taken: int = 0) -> Delivery:
    """Return the result for messages of which only the first *taken* were accepted."""
    ids = ids_of(messages)
    return Delivery(ids[:taken], ids[taken:], _root_cause(error, messages))


def ids_of(messages: Sequence[OutgoingMessage]) -> tuple[str, ...]:
    """Return the ids of messages."""
    return tuple([message.message_id for message in messages])


def prepare(
    messages: Messages, key: str | None, session_of: SessionOf | None, timeout: float | None
) -> list[OutgoingMessage]:
    """Return the messages of a send with ids; raises WrongUse, also for a timeout that is not positive."""
    if timeout is not None and timeout <= 0:
        raise WrongUse(f"timeout of a send: got {timeout} s, expected more than 0, or None")
    return with_ids(messages, key, session_of)


def deadline_of(timeout: float | None) -> float:
    """Return the deadline of a send that starts now, infinity without a timeout. Units: seconds of time.monotonic()."""
    return math.inf if timeout is None else time.monotonic() + timeout


def seconds_until(deadline: float) -> float | None:
    """Return the seconds until a deadline, at least 0; None if it is infinite."""
    return None if deadline == math.inf else max(0.0, deadline - time.monotonic())


def encode(message: SdkMessage) -> None:
    """Check that the SDK can encode a message; raises Unencodable, MessageSizeExceededError."""
    if not fits(ServiceBusMessageBatch(_LARGEST), copy_of(message)):
        raise MessageSizeExceededError(message=f"The message has more than {_LARGEST} bytes.")


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


def fits(batch: Any, message: SdkMessage) -> bool:  # noqa: ANN401 - the SDK's batch
    """Add *message* to *batch* and return True, or False if it has no room; raises Unencodable."""
    try:
        batch.add_message(message)
    except MessageSizeExceededError:
        return False
    except Exception as error:
        # The SDK's error may quote the message.
        text = f"the SDK cannot encode it ({type(error).__name__}), expected only values that have an AMQP type"
        raise Unencodable(f"a message: {text}") from error
    return True


def send_failed(expected: str, outcome: Outcome, unsent: Sequence[str]) -> SendFailed | WrongUse:
    """Return the error of a send, caused by the errors of the namespaces; WrongUse if they all raised WrongUse."""
    wrong = [error for error in outcome.errors.values() if isinstance(error, WrongUse)]
    if len(wrong) == len(outcome.deliveries) and not any(delivery.accepted for delivery in outcome.deliveries.values()):
        return wrong[0]
    seen = "; ".join(
        f"{name} accepted {len(delivery.accepted)} of {len(delivery.accepted) + len(delivery.failed)}"
        + ("" if delivery.error is None else f", {describe(delivery.error)}")
        for name, delivery in outcome.deliveries.items()
    )
    failed = SendFailed(f"send: {seen}; expected {expected}", outcome, unsent)
    errors = [*outcome.errors.values()]
    failed.__cause__ = errors[0] if len(errors) == 1 else ExceptionGroup("the errors of the namespaces", errors)
    return failed


def is_outage(failed: SendFailed) -> bool:
    """Return whether a send failed because namespaces are unavailable, and not because of a message."""
    kinds = {classify(error) for error in failed.errors.values()}
    return ErrorKind.UNAVAILABLE in kinds and ErrorKind.AT_FAULT not in kinds


def is_at_fault(failed: SendFailed) -> bool:
    """Return whether a send failed because of a message, so that a retry cannot succeed."""
    return any(classify(error) is ErrorKind.AT_FAULT for error in failed.errors.values())
