"""Clients for the services, from the app's settings; each function imports the SDK that it needs."""

import ssl
from collections.abc import Collection, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from shared.azure.identity import async_credential
from shared.errors import ConfigError, Problem

if TYPE_CHECKING:
    from azure.eventhub.aio import EventHubProducerClient
    from azure.servicebus.aio import ServiceBusClient

NAMESPACE_SUFFIX = "__fullyQualifiedNamespace"
ADMINISTRATION_SUFFIX = "__administration"
"""After the name of a setting: the address at which an emulator is administered, such as http://localhost:5300."""


def connection_string_fault(text: str, hubs: Collection[str] = ()) -> tuple[str, str] | None:
    """
    Return the problem of a connection string and how to fix it; quotes only the name of its entity.

    It may have an EntityPath, like that of an IoT Hub endpoint, if the only one of *hubs* has that name: the hubs that
    are used with it.
    """
    from azure.servicebus import parse_connection_string

    try:
        entity = parse_connection_string(text).entity_path
    except ValueError:
        # The SDK's error text may quote it.
        return (
            "is not a connection string",
            "expected Endpoint=sb://HOST/;SharedAccessKeyName=NAME;SharedAccessKey=KEY",
        )
    if entity and {hub.lower() for hub in hubs} != {entity.lower()}:
        expected = " and ".join(sorted(hubs)) or "a namespace"
        return f"names one entity, {entity}, expected {expected}", "remove EntityPath"
    return None


def setting_problem(setting: str, settings: Mapping[str, str], hubs: Collection[str] = ()) -> Problem | None:
    """
    Return the problem of the app setting that a connection names, or None.

    *hubs* are those that are used through the connection; see `connection_string_fault`.
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


def service_bus_client(setting: str, settings: Mapping[str, str]) -> "ServiceBusClient":
    """
    Return a client for the namespace that an app setting names.

    A connection string is used as it is, a host name with the app's identity (DefaultAzureCredential). The client does
    not retry: the pipeline does, because it knows when the locks of the batch expire. Raises ConfigError.
    """
    connection_string = connection_string_of(setting, settings)
    if connection_string:
        return service_bus_client_by(connection_string)
    from azure.servicebus.aio import ServiceBusClient

    identity = async_credential()
    return closing(
        ServiceBusClient(settings[setting + NAMESPACE_SUFFIX], identity, retry_total=0, ssl_context=tls()), identity
    )


def event_hub_client(setting: str, settings: Mapping[str, str], hub: str) -> "EventHubProducerClient":
    """Return a client that sends to a hub of the namespace that an app setting names; as `service_bus_client`."""
    connection_string = connection_string_of(setting, settings, [hub])
    if connection_string:
        return event_hub_client_by(connection_string, hub)
    from azure.eventhub.aio import EventHubProducerClient

    identity = async_credential()
    return closing(
        EventHubProducerClient(settings[setting + NAMESPACE_SUFFIX], hub, identity, retry_total=0, ssl_context=tls()),
        identity,
    )


def service_bus_client_by(connection_string: str) -> "ServiceBusClient":
    """Return a client for the namespace of a connection string; it does not retry."""
    from azure.servicebus.aio import ServiceBusClient

    return ServiceBusClient.from_connection_string(connection_string, retry_total=0, ssl_context=tls())


def event_hub_client_by(connection_string: str, hub: str) -> "EventHubProducerClient":
    """Return a client that sends to a hub of the namespace of a connection string; it does not retry."""
    from azure.eventhub.aio import EventHubProducerClient

    return EventHubProducerClient.from_connection_string(
        connection_string, eventhub_name=hub, retry_total=0, ssl_context=tls()
    )


def tls() -> ssl.SSLContext:
    """
    Return the TLS context of all clients, which is what the SDKs make for each connection.

    To read the authorities takes 10 to 40 ms of processor time, also for an emulator without TLS.
    """
    import certifi

    return _trusting(certifi.where())


@cache
def _trusting(authorities: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authorities)
    return context


def closing[Client](client: Client, credential: Any) -> Client:
    """Return *client*, which from now on closes the *credential* that nothing else uses; the SDK's leave it open."""
    opened: Any = client
    close = opened.close

    async def close_both(**options: object) -> None:
        try:
            await close(**options)
        finally:
            await credential.close()

    opened.close = close_both
    return client


def connection_string_of(setting: str, settings: Mapping[str, str], hubs: Collection[str] = ()) -> str | None:
    """Return the connection string in an app setting, None if the setting names a namespace."""
    problem = setting_problem(setting, settings, hubs)
    if problem is not None:
        raise ConfigError([problem])
    return settings.get(setting)
