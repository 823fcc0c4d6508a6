"""What `busway receive` prints of an event hub: the events of all partitions, in order within each partition."""

import asyncio
import contextlib
import os
import time
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime

from cli.bus_receive import Show
from cli.hub_reader import BEFORE_START, events, hub_site
from cli.message_lines import message_line
from cli.places import Place, namespace_of, required_setting
from shared.ends.event_hubs.receiver import EventHub
from shared.ends.event_hubs.site import HubSite
from shared.errors import TargetUnavailable
from shared.message.arrival import Origin
from shared.tasks.source import DEFAULT_CONSUMER_GROUP

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
