"""Event hubs as commands read and print them: without an epoch, so that no reader of the app is disconnected."""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from functools import partial

from cli.bus_receive import Show
from cli.message_lines import message_line
from cli.places import Place, namespace_of, required_setting
from shared.ends.event_hubs.clients import event_hub_client
from shared.ends.event_hubs.receiver import EventHub
from shared.ends.event_hubs.site import HubSite
from shared.ends.namespace import Namespace
from shared.errors import TargetRefused, TargetUnavailable
from shared.message.arrival import Origin
from shared.message.waiting import PartitionEnd
from shared.resend.letters import Letter
from shared.tasks.files import Configuration
from shared.tasks.models import TaskFile
from shared.tasks.source import DEFAULT_CONSUMER_GROUP

BEFORE_START = "-1"
_EVENTS_PER_READ = 500
# The answer to a reader without an epoch, if another one of its consumer group has one.
_STOLEN = "amqp:link:stolen"


def hub_at(setting: str, settings: Mapping[str, str], hub: str, group: str = DEFAULT_CONSUMER_GROUP) -> EventHub:
    """Return a hub of the namespace in an app setting, read with a consumer *group*."""
    return EventHub(Namespace.of(setting, settings, [hub]), hub, group)


def hub_of(
    configuration: Configuration, task: TaskFile, settings: Mapping[str, str], group: str | None = None
) -> EventHub:
    """Return the hub that a task receives from, read with a consumer *group*, by default that of the task."""
    source = task.source
    group = group or source.consumer_group or DEFAULT_CONSUMER_GROUP
    return hub_at(configuration.connections[source.connection].key, settings, source.hub or "", group)


@contextlib.asynccontextmanager
async def hub_site(name: str, setting: str, settings: Mapping[str, str]) -> AsyncIterator[HubSite]:
    """Open what looks at the hubs of the namespace in an app setting."""
    site = HubSite(name, partial(event_hub_client, setting, settings))
    try:
        yield site
    finally:
        await site.close()


async def ends_of(
    configuration: Configuration, task: TaskFile, settings: Mapping[str, str]
) -> Mapping[str, PartitionEnd]:
    """Return the ends of the partitions of a task's hub; raises TargetUnavailable and TargetRefused."""
    alias = task.source.connection
    async with hub_site(configuration.site(alias), configuration.connections[alias].key, settings) as site:
        return await site.partitions(task.source.hub or "")


async def events(
    hub: EventHub, place: Origin, start: str | int | datetime, quiet_seconds: float, *, most: int = _EVENTS_PER_READ
) -> AsyncGenerator[list[Letter]]:
    """
    Yield the events of a partition from *start* on, at most *most* at a time, until none comes for a time.

    Raises TargetUnavailable, and TargetRefused also if the consumer group has a reader with an epoch.
    """
    try:
        opened = await hub.open(str(place.partition), start, 0)
        try:
            while some := await opened.link.receive(most, quiet_seconds):
                yield [Letter(delivery.payload, place) for delivery in some]
        finally:
            await opened.close()
    except TargetUnavailable as error:
        if _STOLEN not in str(error):
            raise
        hint = "the app reads with this consumer group, name another one with --consumer-group"
        raise TargetRefused(f"{error}: {hint}") from error


# The events are there already.
_SILENCE_SECONDS = 10.0
_QUIET_SECONDS = 1.0
_POLL_SECONDS = 0.1


async def receive_events(place: Place, wait: float, show: Show, *, with_position: bool) -> int:
    """
    Print all events that *place* holds, and return how many.

    Raises: ConfigError, TargetRefused, and TargetUnavailable also if some events did not come.
    """
    last = await _last_numbers(place, wait)
    hub = EventHub(namespace_of(place), place.path, DEFAULT_CONSUMER_GROUP)
    count = 0
    try:
        for partition, number in sorted(last.items()):
            count += await _show_partition(hub, Origin(place.alias, place.path, partition), number, show, with_position)
    finally:
        await hub.close()
    return count


async def _show_partition(hub: EventHub, origin: Origin, last: int, show: Show, with_position: bool) -> int:
    """Print the events of a partition up to its *last* one."""
    count, has_last = 0, False
    async with contextlib.aclosing(events(hub, origin, BEFORE_START, _SILENCE_SECONDS)) as found:
        async for letters in found:
            lines = []
            for letter in letters:
                system: dict[str, object] = {"partition": origin.partition}
                if with_position and letter.message is not None:
                    arrival = letter.message.arrival
                    system |= {"sequence_number": arrival.sequence_number, "offset": arrival.offset}
                    system["enqueued_time"] = _time_text(arrival.enqueued_time)
                lines.append(message_line(letter.content, system))
            show(lines)
            count += len(letters)
            # An event that cannot be read has no number here.
            has_last = any(letter.number is None or letter.number >= last for letter in letters)
            if has_last:
                return count
    raise TargetUnavailable(f"{origin.site}/{origin.entity}: partition {origin.partition} has sent only {count} events")


async def partition_lines(place: Place) -> list[str]:
    """Return a table with a line for each partition."""
    async with _site(place) as site:
        ends = await site.partitions(place.path)
    lines = ["partition    events  first event  last event  last enqueued"]
    for name, end in sorted(ends.items(), key=lambda item: (len(item[0]), item[0])):
        cells: tuple[object, ...] = (0, "-", "-", "-")
        if not end.is_empty:
            cells = (end.last - end.first + 1, end.first, end.last, _time_text(end.last_enqueued))
        count, first, last, when = cells
        lines.append(f"{name:>9}  {count:>8}  {first:>11}  {last:>10}  {when}")
    return lines


def _site(place: Place) -> AbstractAsyncContextManager[HubSite]:
    return hub_site(place.alias, required_setting(place.connection.setting, str(place)), os.environ)


def _time_text(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()


async def _last_numbers(place: Place, wait: float) -> dict[str, int]:
    """Return the last sequence number of each partition with events, once no others arrive; {} after *wait* seconds."""
    start = changed = time.monotonic()
    seen: dict[str, int] = {}
    async with _site(place) as site:
        while time.monotonic() < (changed + _QUIET_SECONDS if seen else start + wait):
            ends = await site.partitions(place.path)
            found = {partition: end.last for partition, end in ends.items() if not end.is_empty}
            if found != seen:
                seen, changed = found, time.monotonic()
            await asyncio.sleep(_POLL_SECONDS)
    return seen
