"""Clients for a namespace of Service Bus."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shared.ends.namespace import Namespace, tls

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusClient


def service_bus_client(setting: str, settings: Mapping[str, str]) -> "ServiceBusClient":
    """
    Return a client for the namespace that an app setting names; raises ConfigError.

    The client does not retry: the pipeline does, because it knows when the locks of the batch expire.
    """
    return client_of(Namespace.of(setting, settings))


def client_of(namespace: Namespace, *, retries: int = 0) -> "ServiceBusClient":
    """Return a client for *namespace*."""
    from azure.servicebus.aio import ServiceBusClient

    return namespace.open(ServiceBusClient, retry_total=retries, ssl_context=tls())
