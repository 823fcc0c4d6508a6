"""Outputs by the kind of their connection; each function imports the SDK that it needs."""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Literal

from shared.azure.connections import (
    connection_string_fault,
    event_hub_client,
    event_hub_client_by,
    service_bus_client,
    service_bus_client_by,
)
from shared.azure.event_grid_endpoint import (
    EventGridEndpoint,
    event_grid_endpoint,
    event_grid_endpoint_of,
    event_grid_fault,
)
from shared.azure.senders.amqp_endpoint import EXPECTED, amqp_endpoint, amqp_url_fault
from shared.azure.senders.kafka_endpoint import KafkaEndpoint, kafka_endpoint, kafka_endpoint_of, kafka_fault
from shared.azure.storage_queues import account_string_fault, queue_service, queue_service_by
from shared.errors import Problem, TargetRefused
from shared.protocols import Output, Secrets

type HeaderForm = Literal["text", "amqp"]

_FAULTS = {
    "amqp": amqp_url_fault,
    "kafka": kafka_fault,
    "storage-queue": account_string_fault,
    "event-grid": event_grid_fault,
}


def open_output(
    site: str,
    kind: str,
    setting: str,
    settings: Mapping[str, str],
    capabilities: Mapping[str, str] = MappingProxyType({}),
    *,
    headers: HeaderForm = "text",
) -> Output:
    """
    Return an output to the namespace or broker that an app setting names.

    *capabilities* as in `AmqpOutput`, *headers* as in `KafkaOutput`.
    """
    if kind == "amqp":
        return _amqp_output(site, settings.get(setting, ""), capabilities)
    if kind == "kafka":
        return _kafka_output(site, kafka_endpoint_of(setting, settings), headers)
    if kind == "storage-queue":
        from shared.azure.senders.storage_queue import StorageQueueOutput

        return StorageQueueOutput(site, partial(queue_service, setting, settings))
    if kind == "event-grid":
        return _event_grid_output(site, partial(event_grid_endpoint_of, setting, settings))
    if kind == "service-bus":
        from shared.azure.senders.service_bus import ServiceBusOutput

        return ServiceBusOutput(site, partial(service_bus_client, setting, settings))
    from shared.azure.senders.event_hubs import EventHubsOutput

    return EventHubsOutput(site, partial(event_hub_client, setting, settings))


def open_output_with_secret(
    site: str,
    kind: str,
    secret: str,
    secrets: Secrets,
    capabilities: Mapping[str, str] = MappingProxyType({}),
    *,
    headers: HeaderForm = "text",
) -> Output:
    """Return an output that always uses the current version of a secret: a connection string, or a broker's URL."""
    from shared.azure.senders.renewed import RenewedOutput

    opened = partial(output_with_connection_string, site, kind, secret, capabilities=capabilities, headers=headers)
    return RenewedOutput(site, secret, secrets, opened)


def output_with_connection_string(
    site: str,
    kind: str,
    secret: str,
    connection_string: str,
    *,
    capabilities: Mapping[str, str] = MappingProxyType({}),
    headers: HeaderForm = "text",
) -> Output:
    """Return an output for the value of *secret*; raises TargetRefused if that is not valid."""
    fault = _FAULTS.get(kind, connection_string_fault)(connection_string)
    if fault is not None:
        raise TargetRefused(f"{site}: secret {secret} {fault[0]}; {fault[1]}")
    if kind == "amqp":
        return _amqp_output(site, connection_string, capabilities)
    if kind == "kafka":
        return _kafka_output(site, kafka_endpoint(connection_string), headers)
    if kind == "storage-queue":
        from shared.azure.senders.storage_queue import StorageQueueOutput

        return StorageQueueOutput(site, partial(queue_service_by, connection_string))
    if kind == "event-grid":
        return _event_grid_output(site, partial(event_grid_endpoint, connection_string))
    if kind == "service-bus":
        from shared.azure.senders.service_bus import ServiceBusOutput

        return ServiceBusOutput(site, partial(service_bus_client_by, connection_string))
    from shared.azure.senders.event_hubs import EventHubsOutput

    return EventHubsOutput(site, partial(event_hub_client_by, connection_string))


def amqp_setting_problem(setting: str, settings: Mapping[str, str]) -> Problem | None:
    """Return the problem of the app setting with a broker's URL, or None; it quotes no password."""
    text = settings.get(setting)
    fault = ("is missing", EXPECTED) if not text else amqp_url_fault(text)
    return None if fault is None else Problem(setting, f"the app setting {fault[0]}", fault[1])


def _event_grid_output(site: str, endpoint: Callable[[], EventGridEndpoint]) -> Output:
    from shared.azure.senders.event_grid import EventGridOutput

    return EventGridOutput(site, endpoint)


def _amqp_output(site: str, url: str, capabilities: Mapping[str, str]) -> Output:
    from shared.azure.senders.amqp import AmqpOutput

    return AmqpOutput(site, amqp_endpoint(url), capabilities)


def _kafka_output(site: str, endpoint: KafkaEndpoint, headers: HeaderForm) -> Output:
    from shared.azure.senders.kafka import KafkaOutput

    return KafkaOutput(site, endpoint, headers)
