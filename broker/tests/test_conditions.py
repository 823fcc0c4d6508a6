"""Every condition that the broker can give, and the exception that azure-servicebus makes of it."""

from collections.abc import Callable

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, exceptions

from busway_broker import errors
from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.faults import Effect, Fault, Operation
from busway_broker.thread import RunningBroker
from shared.amqp import errors as amqp_errors
from shared.amqp.errors import (
    DECODE_ERROR,
    FRAMING_ERROR,
    INVALID_FIELD,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    UNAUTHORIZED_ACCESS,
    WINDOW_VIOLATION,
)

NAMESPACES = [NamespaceConfig(name="west", queues=(QueueConfig(name="q"),))]
EXCEPTIONS = {
    errors.ARGUMENT_ERROR: exceptions.ServiceBusError,
    errors.ARGUMENT_OUT_OF_RANGE: exceptions.ServiceBusError,
    DECODE_ERROR: exceptions.ServiceBusError,
    errors.AUTH_FAILED: exceptions.ServiceBusAuthorizationError,
    errors.ENTITY_ALREADY_EXISTS: exceptions.MessagingEntityAlreadyExistsError,
    errors.ENTITY_DISABLED: exceptions.MessagingEntityDisabledError,
    errors.INTERNAL_ERROR: exceptions.ServiceBusError,
    INVALID_FIELD: exceptions.ServiceBusError,
    errors.LINK_STOLEN: exceptions.ServiceBusError,
    errors.MESSAGE_LOCK_LOST: exceptions.MessageLockLostError,
    errors.MESSAGE_NOT_FOUND: exceptions.MessageNotFoundError,
    errors.MESSAGE_SIZE_EXCEEDED: exceptions.MessageSizeExceededError,
    NOT_ALLOWED: exceptions.ServiceBusError,
    errors.NOT_FOUND: exceptions.MessagingEntityNotFoundError,
    NOT_IMPLEMENTED: exceptions.ServiceBusError,
    errors.RESOURCE_LIMIT_EXCEEDED: exceptions.ServiceBusQuotaExceededError,
    errors.SERVER_BUSY: exceptions.ServiceBusServerBusyError,
    errors.SESSION_CANNOT_BE_LOCKED: exceptions.SessionCannotBeLockedError,
    errors.SESSION_LOCK_LOST: exceptions.SessionLockLostError,
    errors.TIMEOUT: exceptions.OperationTimeoutError,
    errors.TRANSFER_LIMIT_EXCEEDED: exceptions.ServiceBusError,
    UNAUTHORIZED_ACCESS: exceptions.ServiceBusAuthorizationError,
}

# What ends a session or a connection is not said to a link or of a message; the last one only clients say.
# The first one is for readers of hubs (test_geo_replication.py).
OTHERS = {
    errors.GEO_REPLICATION_INVALID_OFFSET,
    errors.CONNECTION_FORCED,
    errors.DETACH_FORCED,
    FRAMING_ERROR,
    errors.HANDLE_IN_USE,
    errors.UNATTACHED_HANDLE,
    errors.TRANSACTION_ROLLBACK,
    errors.UNKNOWN_TRANSACTION,
    WINDOW_VIOLATION,
    errors.DEAD_LETTER,
}


def test_the_table_is_complete() -> None:
    known = {value for module in (errors, amqp_errors) for name, value in vars(module).items() if name.isupper()}
    assert known == set(EXCEPTIONS) | OTHERS


def send(client: ServiceBusClient) -> None:
    with client.get_queue_sender("q") as sender:
        sender.send_messages(ServiceBusMessage("x"))


def attach(client: ServiceBusClient) -> None:
    with client.get_queue_receiver("q"):
        pytest.fail("the receiver has opened")


def peek(client: ServiceBusClient) -> None:
    with client.get_queue_receiver("q") as receiver:
        receiver.peek_messages()


ACTS: dict[Operation, Callable[[ServiceBusClient], None]] = {
    Operation.SEND: send,
    Operation.ATTACH: attach,
    Operation.MANAGE: peek,
}


@pytest.mark.parametrize("operation", ACTS)
@pytest.mark.parametrize(("condition", "exception"), EXCEPTIONS.items())
def test_what_is_refused_raises(
    broker: RunningBroker,
    client: ServiceBusClient,
    operation: Operation,
    condition: str,
    exception: type[exceptions.ServiceBusError],
) -> None:
    fault = Fault(
        effect=Effect.REFUSE, condition=condition, operations=frozenset((operation,)), description="the reason"
    )
    broker.faults("west").add(fault)
    with pytest.raises(exceptions.ServiceBusError, match="the reason") as raised:
        ACTS[operation](client)
    assert type(raised.value) is exception
