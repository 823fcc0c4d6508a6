"""Event hubs as commands read them: without an epoch, so that no reader of the app is disconnected."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from datetime import datetime
from functools import partial

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
