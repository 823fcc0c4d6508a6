"""The messages of a task's source, read without receiving them."""

import contextlib
from collections.abc import Mapping

from cli.dry_run.recorded_messages import RecordedMessage
from cli.hub_reader import ends_of, events, hub_of
from shared.ends.event_hubs.receiver import EventHub
from shared.message.arrival import Origin
from shared.resend.letters import Letter
from shared.resend.peek import peek
from shared.resend.places import place_at
from shared.tasks.files import Configuration
from shared.tasks.models import TaskFile

_WAIT_SECONDS = 10.0


async def source_messages(
    configuration: Configuration, task: TaskFile, count: int, settings: Mapping[str, str], *, consumer_group: str
) -> list[RecordedMessage]:
    """
    Return the first *count* messages of a task's source, or the last *count* events of a hub.

    Raises ConfigError for an invalid app setting, TargetUnavailable and TargetRefused if the service fails.
    """
    source = task.source
    if source.hub is not None:
        return await _last_events(configuration, task, count, settings, consumer_group)
    found: list[RecordedMessage] = []
    place = place_at(source.connection, source.entity, configuration)
    async with contextlib.aclosing(peek(place, settings)) as letters:
        async for letter, message in letters:
            # The entity would deliver no others.
            if message.is_active:
                found.append(RecordedMessage(letter.content))
            if len(found) == count:
                break
    return found


async def _last_events(
    configuration: Configuration, task: TaskFile, count: int, settings: Mapping[str, str], consumer_group: str
) -> list[RecordedMessage]:
    """Return the last events of the partitions that the task reads, ordered by time and within each partition."""
    place = Origin(configuration.site(task.source.connection), task.source.entity)
    wanted = None if task.source.partitions is None else {str(partition) for partition in task.source.partitions}
    hub = hub_of(configuration, task, settings, consumer_group)
    found: list[tuple[int, int, RecordedMessage]] = []
    try:
        for partition, end in (await ends_of(configuration, task, settings)).items():
            if not end.is_empty and (wanted is None or partition in wanted):
                after = max(end.first - 1, end.last - count)
                letters = await _events(hub, place._replace(partition=partition), after, end.last)
                found += [
                    (letter.enqueued_time or 0, index, RecordedMessage(letter.content, partition))
                    for index, letter in enumerate(letters)
                ]
    finally:
        await hub.close()
    return [recorded for _, _, recorded in sorted(found, key=lambda each: each[:2])[-count:]]


async def _events(hub: EventHub, place: Origin, after: int, last: int) -> list[Letter]:
    """Return the events after number *after* up to *last*, which must exist."""
    found: list[Letter] = []
    async with contextlib.aclosing(events(hub, place, after, _WAIT_SECONDS, most=last - after)) as pages:
        async for page in pages:
            found += page
            if len(found) >= last - after:
                break
    return found[: last - after]
