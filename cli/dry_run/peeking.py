"""Reads messages of a task's source without receiving them."""

from collections.abc import Mapping

from azure.core.exceptions import AzureError
from azure.eventhub.exceptions import EventHubError

from cli.dry_run.recorded import Recorded
from local.host.event_hubs_connection import EventHub
from shared.azure.connections import NAMESPACE_SUFFIX, event_hub_client, service_bus_client
from shared.azure.peek import first_messages
from shared.azure.receivers.connection import Connection as HostConnection
from shared.config.files import Configuration
from shared.config.models import Source, TaskFile
from shared.errors import MessageRejected, TargetUnavailable
from shared.message.arrival import Origin
from shared.message.message import Message

_WAIT_SECONDS = 10.0


async def peek_messages(
    configuration: Configuration,
    task: TaskFile,
    count: int,
    settings: Mapping[str, str],
    *,
    consumer_group: str,
) -> list[Recorded]:
    """
    Return the first *count* messages of a task's source, or the last *count* events of a hub.

    Raises ConfigError for an invalid app setting, TargetUnavailable and TargetRefused if the service fails.
    """
    source = task.source
    connection = configuration.connections[source.connection]
    setting = connection.key
    place = Origin(configuration.site(source.connection), source.entity)
    if source.hub is not None:
        return await _last_events(place, source, setting, settings, count, consumer_group=consumer_group)
    async with service_bus_client(setting, settings) as client:
        return [Recorded(each) for each in await first_messages(client, place, count)]


async def _last_events(
    place: Origin, source: Source, setting: str, settings: Mapping[str, str], count: int, *, consumer_group: str
) -> list[Recorded]:
    """Return the last events of the partitions that the task reads, ordered by time and within each partition."""
    name = source.hub or ""
    hub = EventHub(
        HostConnection(setting, settings.get(setting), settings.get(setting + NAMESPACE_SUFFIX)), name, consumer_group
    )
    wanted = None if source.partitions is None else {str(each) for each in source.partitions}
    found: list[tuple[int, int, Recorded]] = []
    try:
        for partition, (first, last) in (await _numbers(place, name, setting, settings)).items():
            if wanted is None or partition in wanted:
                contents = await _events(hub, partition, max(first - 1, last - count), last)
                found += [(_enqueued(each, place), index, Recorded(each, partition)) for index, each in contents]
    finally:
        await hub.close()
    latest = sorted(found, key=lambda each: each[:2])[-count:]
    return [each for _, _, each in latest]


async def _numbers(place: Origin, name: str, setting: str, settings: Mapping[str, str]) -> dict[str, tuple[int, int]]:
    """Return the first and last sequence number of each partition that has events."""
    try:
        async with event_hub_client(setting, settings, name) as client:
            partitions = [await client.get_partition_properties(each) for each in await client.get_partition_ids()]
    except (AzureError, EventHubError, OSError) as error:
        raise TargetUnavailable(f"{place.site}/{place.entity}: cannot be read, {type(error).__name__}") from error
    return {
        each["id"]: (each["beginning_sequence_number"], each["last_enqueued_sequence_number"])
        for each in partitions
        if not each["is_empty"]
    }


async def _events(hub: EventHub, partition: str, after: int, last: int) -> list[tuple[int, bytes]]:
    """Return the events after number *after* up to *last*, which must exist, each with its index."""
    found: list[bytes] = []
    opened = await hub.open(partition, after, 0)
    try:
        while len(found) < last - after:
            received = await opened.link.receive(last - after - len(found), _WAIT_SECONDS)
            if not received:
                break
            found += [each.payload for each in received]
    finally:
        await opened.close()
    return list(enumerate(found))


def _enqueued(content: bytes, place: Origin) -> int:
    try:
        return Message.received(content, place).arrival.enqueued_time or 0
    except MessageRejected:
        return 0
