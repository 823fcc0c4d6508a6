"""
The private parts of the azure-servicebus SDK that Busway uses; those of its links are in `link.py`.

1. A failed send names its AMQP condition.
2. The credential of a client, for connections with Busway's own AMQP.
3. The exceptions that the SDK raises for conditions.

The SDK's version is pinned; tests/contracts/test_service_bus_internals.py and test_receive_seam.py fail if any of this
changes.
"""

import logging
from typing import Any, NoReturn

from azure.servicebus._pyamqp.error import AMQPException
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio._transport._pyamqp_transport_async import PyamqpTransportAsync
from azure.servicebus.exceptions import ServiceBusError

from shared.amqp.errors import AmqpError
from shared.ends.azure_amqp.raw_connection import Peer
from shared.ends.namespace import tls

_LOGGER = logging.getLogger(__name__)
_SCOPE = "https://servicebus.azure.net//.default"


def condition_of(error: Exception) -> str | None:
    """Return the AMQP condition that the service sent, None if it sent none."""
    condition = error._condition if isinstance(error, ServiceBusError) else None
    return condition.decode() if isinstance(condition, bytes) else condition


def peer_of(client: ServiceBusClient) -> Peer:
    """Return the namespace of a client, with its credential."""
    context = tls() if client._config.use_tls else None
    return Peer(client.fully_qualified_namespace, context, client._credential, _SCOPE)


def raise_as_sdk(error: BaseException) -> NoReturn:
    """Raise what the SDK raises for an error of a connection with Busway's own AMQP."""
    if isinstance(error, AmqpError):
        seen: Any = AMQPException((error.condition or "amqp:internal-error").encode(), description=error.description)
        raise PyamqpTransportAsync.create_servicebus_exception(_LOGGER, seen) from error
    raise error


def raise_refused(status: int, condition: str, description: str) -> NoReturn:
    """Raise what the SDK raises for a request that was answered with an error."""
    named: Any = condition.encode() or None
    PyamqpTransportAsync.handle_amqp_mgmt_error(_LOGGER, "The request failed.", named, description, status)  # type: ignore[arg-type] # an int, as the SDK passes it
    raise AssertionError  # it always raises
