"""Clients of the services, from the app's settings; one per connection, opened at its first use."""

from collections.abc import Mapping

from azure.eventhub.aio import EventHubProducerClient
from azure.identity.aio import DefaultAzureCredential
from azure.servicebus import parse_connection_string
from azure.servicebus.aio import ServiceBusClient

from shared.errors import ConfigError, Problem

NAMESPACE_SUFFIX = "__fullyQualifiedNamespace"
CONNECTION_STRING_HINT = "it looks like Endpoint=sb://HOST/;SharedAccessKeyName=NAME;SharedAccessKey=KEY"


def connection_string_fault(text: str) -> str | None:
    """Return what is wrong with the connection string of a namespace, in words that quote none of it."""
    try:
        entity = parse_connection_string(text).entity_path
    except ValueError:
        return "is no connection string"
    return "names one entity, expected a namespace without EntityPath" if entity else None


def setting_problem(setting: str, settings: Mapping[str, str]) -> Problem | None:
    """Return what is wrong with the app setting that a connection names, None where it can be used."""
    text = settings.get(setting)
    if text:
        fault = connection_string_fault(text)
        return None if fault is None else Problem(setting, f"the app setting {fault}", CONNECTION_STRING_HINT)
    if settings.get(setting + NAMESPACE_SUFFIX):
        return None
    return Problem(
        setting,
        "the app setting is missing",
        f"set {setting} to a connection string or {setting}{NAMESPACE_SUFFIX} to the namespace's host name",
    )


def service_bus_client(setting: str, settings: Mapping[str, str]) -> ServiceBusClient:
    """
    Return a client of the namespace that an app setting names.

    A connection string as it is; a namespace with the identity of the app (DefaultAzureCredential). The client does not
    retry: the pipeline knows how long the locks of the batch still hold, the client does not. Raises ConfigError.
    """
    text = _usable(setting, settings)
    if text:
        return service_bus_client_by(text)
    return ServiceBusClient(settings[setting + NAMESPACE_SUFFIX], DefaultAzureCredential(), retry_total=0)


def event_hub_client(setting: str, settings: Mapping[str, str], hub: str) -> EventHubProducerClient:
    """Return a client that sends to a hub of the namespace that an app setting names; as `service_bus_client`."""
    text = _usable(setting, settings)
    if text:
        return event_hub_client_by(text, hub)
    return EventHubProducerClient(settings[setting + NAMESPACE_SUFFIX], hub, DefaultAzureCredential(), retry_total=0)


def service_bus_client_by(connection_string: str) -> ServiceBusClient:
    """Return a client of the namespace of a connection string; it does not retry."""
    return ServiceBusClient.from_connection_string(connection_string, retry_total=0)


def event_hub_client_by(connection_string: str, hub: str) -> EventHubProducerClient:
    """Return a client that sends to a hub of the namespace of a connection string; it does not retry."""
    return EventHubProducerClient.from_connection_string(connection_string, eventhub_name=hub, retry_total=0)


def _usable(setting: str, settings: Mapping[str, str]) -> str | None:
    """Return the connection string in an app setting, None where it names a namespace."""
    problem = setting_problem(setting, settings)
    if problem is not None:
        raise ConfigError([problem])
    return settings.get(setting)
