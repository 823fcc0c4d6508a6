"""The namespaces of a configuration: how each is reached, and what it has."""

import asyncio
import os
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from cli.entities import entities_files
from cli.hub_reader import hub_at, hub_site
from cli.output import waits_for
from cli.places import required_setting
from cli.topology.config_json import namespace_in
from cli.topology.live import read_hubs, read_service_bus
from cli.topology.model import Kind, Name, Namespace
from cli.topology.needs import Needed
from shared.ends.look_error import DoesNotExist
from shared.ends.service_bus.administration import administration_client, translating
from shared.errors import ConfigError, Problem, TargetRefused, TargetUnavailable
from shared.tasks.files import Configuration
from shared.tasks.models import Connection

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient


_SECONDS = 20.0
_NOT_FOUND = "amqp:not-found"


def open_client(alias: str, connection: Connection) -> "ServiceBusAdministrationClient":
    """Return the administration client of a Service Bus namespace of the environment; raises ConfigError."""
    setting = required_setting(connection.setting, alias)
    return administration_client(setting, os.environ)


def read_site(alias: str, connection: Connection, needed: Mapping[tuple[Kind, str], Needed] | None) -> Namespace:
    """Return what a namespace has, of *needed* or of everything; raises BuswayError if it cannot be read."""
    waits_for(alias)
    if not connection.is_namespace:
        raise ConfigError([Problem(alias, f"is of kind {connection.kind}, expected service-bus or event-hubs")])
    if connection.end.has_hubs:
        if needed is None:
            hint = "Event Hubs lists its hubs only in Resource Manager: az eventhubs eventhub list"
            raise ConfigError([Problem(alias, "is of kind event-hubs, expected service-bus", hint)])
        setting = required_setting(connection.setting, alias)

        ask = partial(partitions_of, setting=setting, settings=os.environ, alias=alias)
        return asyncio.run(read_hubs([need.name for need in needed.values()], ask))
    topics = (
        None if needed is None else [each.name.parts[0] for each in needed.values() if each.name.kind is Kind.TOPIC]
    )
    with open_client(alias, connection) as client, translating(alias):
        return read_service_bus(client, topics)


def read_files(files: Iterable[str], configuration: Configuration) -> dict[str, Namespace]:
    """Return the namespaces of Config.json files by the key of their connection; raises ConfigError."""
    found = entities_files(list(files), configuration.connections)
    return {key: namespace_in(config) for key, config in found.items()}


async def partitions_of(name: Name, setting: str, settings: Mapping[str, str], alias: str) -> int | None:
    """
    Return the number of partitions of a hub or of a consumer group's hub, None if it does not exist.

    A consumer group is asked for by attaching to it at the end of a partition: nothing is read. Raises BuswayError.
    """
    try:
        async with hub_site(alias, setting, settings) as site, asyncio.timeout(_SECONDS):
            partitions = await site.partitions(name.parts[0])
            if name.kind is Kind.CONSUMER_GROUP and not await _exists(name, setting, settings, min(partitions)):
                return None
            return len(partitions)
    except DoesNotExist:
        return None
    except TimeoutError as error:
        late = f"no answer in {_SECONDS:.0f} s (check the address and the network)"
        raise TargetUnavailable(f"{alias}/{name.parts[0]}: {late}") from error


async def _exists(name: Name, setting: str, settings: Mapping[str, str], partition: str) -> bool:
    hub = hub_at(setting, settings, *name.parts)
    try:
        opened = await hub.open(partition, "@latest", 0)
    except (TargetRefused, TargetUnavailable) as error:
        if _NOT_FOUND in str(error):
            return False
        raise
    finally:
        await hub.close()
    await opened.close()
    return True
