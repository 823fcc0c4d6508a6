"""The effects of a fault on one operation."""

from collections.abc import Callable
from typing import Any

from busway_broker.core.namespace import Namespace
from busway_broker.errors import Refusal
from busway_broker.faults import Effect, Fault, Operation
from busway_broker.protocol.link_session import LinkConnection
from shared.amqp.errors import AmqpError

_MANAGEMENT = "/$management"


def apply_fault[Answer](
    fault: Fault,
    connection: LinkConnection[Any],
    path: str,
    carry_out: Callable[[], Answer],
    refuse: Callable[[Refusal], Answer],
) -> Answer | None:
    """Apply *fault* to an operation on the entity at *path*; return the operation's answer, None for no answer."""
    refusal = fault.refusal(is_hub=connection.namespace.is_hub(path))
    if refusal is not None:
        if fault.takes_effect:
            carry_out()
        return refuse(refusal)
    match fault.effect:
        case Effect.DROP_CONNECTION:
            if fault.takes_effect:
                carry_out()
            connection.drop()
            return None
        case Effect.LOSE_ACKNOWLEDGEMENT:
            carry_out()
            return None
        case Effect.DELAY:
            connection.delay_output(fault.delay)
        case Effect.EXPIRE_LOCKS:
            expire_locks(connection.namespace, path)
    return carry_out()


def under_faults[Answer](
    operation: Operation,
    connection: LinkConnection[Any],
    path: str,
    carry_out: Callable[[], Answer],
    refuse: Callable[[Refusal], Answer],
) -> Answer | None:
    """Carry out an operation on the entity at *path* unless a fault strikes it; otherwise as `apply_fault`."""
    faults = connection.namespace.faults
    fault = faults.strike(operation, path) if faults.is_set else None
    return carry_out() if fault is None else apply_fault(fault, connection, path, carry_out, refuse)


def expire_locks(namespace: Namespace, path: str) -> None:
    """End all locks on the messages of the entity at *path*; a topic or a hub has none."""
    try:
        store = namespace.store(path.removesuffix(_MANAGEMENT))
    except AmqpError:
        return
    store.expire_locks()
