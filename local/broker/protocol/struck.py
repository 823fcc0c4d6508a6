"""What becomes of an operation that a fault strikes."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from local.broker.core.namespace import Namespace
from local.broker.errors import Refusal
from local.broker.faults import Effect, Fault

if TYPE_CHECKING:
    from local.broker.protocol.connection import Connection

_MANAGEMENT = "/$management"


def perform[Answer](
    fault: Fault,
    connection: "Connection",
    path: str,
    carry_out: Callable[[], Answer],
    refuse: Callable[[Refusal], Answer],
) -> Answer | None:
    """Deal with an operation on the entity at *path* that *fault* strikes; return its answer, None for silence."""
    refusal = fault.refusal
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
            connection.hold(fault.delay)
        case Effect.EXPIRE_LOCKS:
            expire_locks(connection.namespace, path)
    return carry_out()


def expire_locks(namespace: Namespace, path: str) -> None:
    """End all locks on what a receiver at *path* receives from; where there are none, nothing happens."""
    try:
        store = namespace.store(path.removesuffix(_MANAGEMENT))
    except Refusal:
        return  # a topic or a hub, which lock nothing
    store.expire_locks()
