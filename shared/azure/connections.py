"""Clients of the services, from the app's settings; one per connection, opened at its first use."""

from collections.abc import Collection, Mapping

from azure.eventhub.aio import EventHubProducerClient
from azure.identity.aio import DefaultAzureCredential
from azure.servicebus import parse_connection_string
from azure.servicebus.aio import ServiceBusClient

from shared.errors import ConfigError, Problem

NAMESPACE_SUFFIX = "__fullyQualifiedNamespace"


def connection_string_fault(text: str, hubs: Collection[str] = ()) -> tuple[str, str] | None:
    """
    Return what is wrong with a connection string and how to mend it, quoting no more of it than the entity it names.

    It may be that of one entity (EntityPath), as IoT Hub gives it for its endpoint, where that is the only one of
    *hubs*, which are those that are used by it.
    """
    try:
        entity = parse_connection_string(text).entity_path
    except ValueError:
        # What the SDK says of it may quote it.
        return (
            "is no connection string",
            "it looks like Endpoint=sb://HOST/;SharedAccessKeyName=NAME;SharedAccessKey=KEY",
        )
    if entity and {hub.lower() for hub in hubs} != {entity.lower()}:
        expected = " and ".join(sorted(hubs)) or "a namespace"
        return f"names one entity, {entity}, expected {expected}", "remove EntityPath"
    return None


def setting_problem(setting: str, settings: Mapping[str, str], hubs: Collection[str] = ()) -> Problem | None:
    """
    Return what is wrong with the app setting that a connection names, None where it can be used.

    A connection string may be that of one entity (EntityPath), as IoT Hub gives it for its endpoint, where that is the
    only one of *hubs*, which are those that are used by this connection.
    """
    text = settings.get(setting)
    if text:
        fault = connection_string_fault(text, hubs)
        return None if fault is None else Problem(setting, f"the app setting {fault[0]}", fault[1])
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
    text = _usable(setting, settings, [hub])
    if text:
        return event_hub_client_by(text, hub)
    return EventHubProducerClient(settings[setting + NAMESPACE_SUFFIX], hub, DefaultAzureCredential(), retry_total=0)


def service_bus_client_by(connection_string: str) -> ServiceBusClient:
    """Return a client of the namespace of a connection string; it does not retry."""
    return ServiceBusClient.from_connection_string(connection_string, retry_total=0)


def event_hub_client_by(connection_string: str, hub: str) -> EventHubProducerClient:
    """Return a client that sends to a hub of the namespace of a connection string; it does not retry."""
    return EventHubProducerClient.from_connection_string(connection_string, eventhub_name=hub, retry_total=0)


def _usable(setting: str, settings: Mapping[str, str], hubs: Collection[str] = ()) -> str | None:
    """Return the connection string in an app setting, None where it names a namespace."""
    problem = setting_problem(setting, settings, hubs)
    if problem is not None:
        raise ConfigError([problem])
    return settings.get(setting)
