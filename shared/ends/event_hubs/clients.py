"""Clients for a hub of a namespace of Event Hubs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shared.ends.namespace import Namespace, tls

if TYPE_CHECKING:
    from azure.eventhub.aio import EventHubConsumerClient, EventHubProducerClient


def event_hub_client(setting: str, settings: Mapping[str, str], hub: str) -> "EventHubProducerClient":
    """Return a client that sends to a hub of the namespace that an app setting names; it does not retry."""
    return producer_of(Namespace.of(setting, settings, [hub]), hub)


def producer_of(namespace: Namespace, hub: str, *, retries: int = 0) -> "EventHubProducerClient":
    """Return a client that sends to *hub*."""
    from azure.eventhub.aio import EventHubProducerClient

    return namespace.open(EventHubProducerClient, eventhub_name=hub, retry_total=retries, ssl_context=tls())


def consumer_of(namespace: Namespace, hub: str, group: str, identity: Any) -> "EventHubConsumerClient":
    """Return a client that reads *hub* as the consumer *group*; *identity* is the caller's, for a host name."""
    from azure.eventhub.aio import EventHubConsumerClient

    return namespace.open(
        EventHubConsumerClient, eventhub_name=hub, consumer_group=group, identity=identity, ssl_context=tls()
    )
