"""Microsoft's synchronous clients for a place: by its connection string, or with an Azure identity."""

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import unquote, urlsplit

from azure.eventhub import EventHubConsumerClient, EventHubProducerClient
from azure.servicebus import ServiceBusClient

from cli.places import Place, required_setting
from shared.azure.connections import NAMESPACE_SUFFIX, setting_problem
from shared.azure.identity import credential
from shared.errors import ConfigError, Problem


def service_bus_client(place: Place) -> AbstractContextManager[ServiceBusClient]:
    """Open a client for the namespace of *place*; raises ConfigError."""
    return _client(place, ServiceBusClient.from_connection_string, ServiceBusClient)


def producer_client(place: Place) -> AbstractContextManager[EventHubProducerClient]:
    """Open a client that sends to the hub of *place*; raises ConfigError."""
    return _client(
        place,
        lambda text: EventHubProducerClient.from_connection_string(text, eventhub_name=place.path),
        lambda host, identity: EventHubProducerClient(host, place.path, identity),
    )


def consumer_client(place: Place, group: str) -> AbstractContextManager[EventHubConsumerClient]:
    """Open a client that reads the hub of *place*; raises ConfigError."""
    return _client(
        place,
        lambda text: EventHubConsumerClient.from_connection_string(text, group, eventhub_name=place.path),
        lambda host, identity: EventHubConsumerClient(host, place.path, group, identity),
    )


def _client[C: AbstractContextManager[Any]](
    place: Place, of_text: Callable[[str], C], of_identity: Callable[[str, Any], C]
) -> AbstractContextManager[C]:
    host = os.environ.get(f"{place.connection.setting}{NAMESPACE_SUFFIX}", "")
    return open_client(_connection_string(place), host, of_text, of_identity)


@contextlib.contextmanager
def open_client[C: AbstractContextManager[Any]](
    text: str | None, host: str, of_text: Callable[[str], C], of_identity: Callable[[str, Any], C]
) -> Iterator[C]:
    """Open a client with the connection string *text*, or without one as the identity of this machine at *host*."""
    if text is not None:
        with of_text(text) as client:
            yield client
        return
    with credential() as identity, of_identity(host, identity) as client:
        yield client


def _connection_string(place: Place) -> str | None:
    """Return the connection string of a place, None if its app setting names a namespace; raises ConfigError."""
    if place.connection.kind == "event-grid":
        hint = "receive behind its webhook, or publish with az eventgrid"
        raise ConfigError([Problem(str(place), "is a topic of Event Grid, which this command does not reach", hint)])
    if place.connection.kind == "amqp":
        return _replacement(place, os.environ.get(place.connection.setting or "", ""))
    if place.connection.kind == "kafka":
        raise ConfigError([Problem(str(place), "is of kind kafka", "use a Kafka client")])
    setting = required_setting(place.connection.setting, str(place))
    problem = setting_problem(setting, os.environ, [place.path] if place.is_hub else [])
    if problem is not None:
        raise ConfigError([problem])
    return os.environ.get(setting) or None


def _replacement(place: Place, url: str) -> str:
    """Return the connection string of the local broker's namespace that replaces a broker of kind amqp."""
    found = urlsplit(url)
    if found.scheme != "amqp" or found.username is None:
        hint = "use a client of the broker; this command reaches only what `busway start` puts in its place"
        raise ConfigError([Problem(str(place), "is of kind amqp", hint)])
    key = f"SharedAccessKeyName={unquote(found.username)};SharedAccessKey={unquote(found.password or '')}"
    return f"Endpoint=sb://{found.hostname}:{found.port};{key};UseDevelopmentEmulator=true"
