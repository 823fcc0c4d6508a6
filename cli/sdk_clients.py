"""Microsoft's synchronous clients for a place: by its connection string, or with an Azure identity."""

import contextlib
import os
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from azure.eventhub import EventHubConsumerClient, EventHubProducerClient
from azure.servicebus import ServiceBusClient

from cli.places import Place
from shared.azure.connections import NAMESPACE_SUFFIX, setting_problem
from shared.azure.identity import credential
from shared.errors import ConfigError, Problem


@contextlib.contextmanager
def service_bus_client(place: Place) -> Iterator[ServiceBusClient]:
    """Yield a client for the namespace of *place*; raises ConfigError."""
    text = _connection_string(place)
    if text is not None:
        with ServiceBusClient.from_connection_string(text) as client:
            yield client
        return
    with credential() as identity, ServiceBusClient(_namespace(place), identity) as client:
        yield client


@contextlib.contextmanager
def producer_client(place: Place) -> Iterator[EventHubProducerClient]:
    """Yield a client that sends to the hub of *place*; raises ConfigError."""
    text = _connection_string(place)
    if text is not None:
        with EventHubProducerClient.from_connection_string(text, eventhub_name=place.path) as client:
            yield client
        return
    with (
        credential() as identity,
        EventHubProducerClient(_namespace(place), place.path, identity) as client,
    ):
        yield client


@contextlib.contextmanager
def consumer_client(place: Place, consumer_group: str) -> Iterator[EventHubConsumerClient]:
    """Yield a client that reads the hub of *place*; raises ConfigError."""
    text = _connection_string(place)
    if text is not None:
        with EventHubConsumerClient.from_connection_string(text, consumer_group, eventhub_name=place.path) as client:
            yield client
        return
    with (
        credential() as identity,
        EventHubConsumerClient(_namespace(place), place.path, consumer_group, identity) as client,
    ):
        yield client


def _connection_string(place: Place) -> str | None:
    """Return the connection string of a place, None if its app setting names a namespace; raises ConfigError."""
    setting = place.connection.setting
    if place.connection.kind == "event-grid":
        hint = "receive behind its webhook, or publish with az eventgrid"
        raise ConfigError([Problem(str(place), "is a topic of Event Grid, which this command does not reach", hint)])
    if place.connection.kind == "amqp":
        return _replacement(place, os.environ.get(setting or "", ""))
    if place.connection.kind == "kafka":
        raise ConfigError([Problem(str(place), "is of kind kafka", "use a Kafka client")])
    if setting is None:
        hint = "give the connection a `setting` too; the secret stays what the app sends with"
        raise ConfigError([Problem(str(place), "has a secret and no setting, which this command needs", hint)])
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


def _namespace(place: Place) -> str:
    return os.environ[f"{place.connection.setting}{NAMESPACE_SUFFIX}"]
