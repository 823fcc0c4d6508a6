"""Builds the watches for losses of a configuration."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from shared.assembly.status import open_status_container, store_problem
from shared.ends.event_hubs.clients import event_hub_client
from shared.ends.service_bus.clients import service_bus_client
from shared.errors import ConfigError, Problem
from shared.losses.journal_tail import JournalTail
from shared.losses.numbers import Dead, Gap, Held
from shared.losses.watch import DeadLetters, LossWatch, Place, Seen
from shared.message.arrival import Origin
from shared.message.waiting import DEAD_LETTERS
from shared.protocols import LossTelemetry
from shared.stores.storage_account import open_container
from shared.tasks.files import Configuration
from shared.tasks.models import TaskFile

if TYPE_CHECKING:
    from shared.ends.event_hubs.site import HubSite

SETTING = "BUSWAY_LOSS_WATCH"
ON, OFF = "on", "off"


def loss_watches(
    configuration: Configuration, settings: Mapping[str, str], telemetry: LossTelemetry | None = None
) -> "LossWatches":
    """Return a watch for each source whose tasks all have a journal in blobs; raises ConfigError."""
    choice = settings.get(SETTING) or ON
    if choice not in (ON, OFF):
        raise ConfigError([Problem(SETTING, f"is {choice!r}, expected {ON} or {OFF}")])
    journal = configuration.journal
    if choice == OFF or store_problem(configuration, settings) is not None or journal is None or journal.blob is None:
        return LossWatches()
    watched = [tasks for tasks in _by_source(configuration) if all(task.journal is not False for task in tasks)]
    if not watched:
        return LossWatches()
    blobs = open_container(journal.blob.setting, settings, journal.blob.container, errors_name="journal ")
    states = open_status_container(configuration, settings)
    sources = [_source(configuration, settings, tasks[0]) for tasks in watched]
    watches = [
        LossWatch(
            _place(configuration, tasks[0]),
            {task.task: JournalTail(blobs, task.task) for task in tasks},
            source,
            states,
            telemetry,
        )
        for tasks, source in zip(watched, sources, strict=True)
    ]
    return LossWatches(watches, [blobs, states, *(source for source in sources if isinstance(source, _Hub))])


class _Closable(Protocol):
    async def close(self) -> None: ...


class LossWatches:
    """The watches of an app; an app that ends does not close them."""

    def __init__(self, watches: Sequence[LossWatch] = (), connections: Sequence[_Closable] = ()) -> None:
        """Keep the *connections* of the *watches*."""
        self.watches = watches
        self._connections = connections

    async def close(self) -> None:
        """Close all connections."""
        for connection in self._connections:
            await connection.close()


def _by_source(configuration: Configuration) -> list[list[TaskFile]]:
    """Return the tasks that take from the same queue or subscription together: each has some of its numbers."""
    groups: dict[tuple[str, str, str], list[TaskFile]] = {}
    for task in configuration.tasks:
        source = task.source
        if not configuration.connections[source.connection].is_namespace:
            continue  # its messages have no numbers without gaps
        if source.compacted:
            continue  # compaction leaves gaps
        key = configuration.connections[source.connection].key
        # Two consumer groups of a hub see all events each.
        group = task.task if source.hub is not None else ""
        groups.setdefault((key, source.entity.lower(), group), []).append(task)
    return list(groups.values())


def _place(configuration: Configuration, task: TaskFile) -> Place:
    source = task.source
    return Place(configuration.site(source.connection), source.entity, source.hub is not None)


def _source(configuration: Configuration, settings: Mapping[str, str], task: TaskFile) -> "_Entity | _Hub":
    key = configuration.connections[task.source.connection].key
    place = _place(configuration, task)
    if place.is_hub:
        from shared.ends.event_hubs.site import HubSite  # noqa: PLC0415 - imports the SDK

        return _Hub(HubSite(place.site, lambda hub: event_hub_client(key, settings, hub)), place.entity)
    return _Entity(key, settings, place, is_subscription=task.source.topic is not None)


class _Entity:
    """A queue or subscription."""

    def __init__(self, key: str, settings: Mapping[str, str], place: Place, *, is_subscription: bool) -> None:
        from shared.ends.service_bus.peek import peeker_opener  # noqa: PLC0415 - imports the SDK

        open_client = partial(service_bus_client, key, settings)
        self._open = peeker_opener(open_client, Origin(place.site, place.entity))
        # Dead letters are not dead-lettered.
        self._has_dead_letters = "/$" not in place.entity
        self._open_dead = peeker_opener(open_client, Origin(place.site, place.entity + DEAD_LETTERS))
        self._is_subscription = is_subscription

    async def look(self, part: int, gaps: Sequence[Gap], high: int) -> Seen:  # noqa: ARG002 - of a hub
        from shared.ends.service_bus.missing import Range, held_numbers  # noqa: PLC0415 - imports the SDK

        held, until = await held_numbers(self._open, part, [Range(gap.first, gap.last) for gap in gaps])
        return Seen([Held(*each) for each in held], until)

    async def dead_letters(self, after: int) -> DeadLetters:
        from shared.ends.service_bus.missing import dead_letters  # noqa: PLC0415 - imports the SDK

        if not self._has_dead_letters:
            return DeadLetters((), is_complete=True)
        found, is_complete = await dead_letters(self._open_dead, after, has_own_numbers=not self._is_subscription)
        return DeadLetters([Dead(*letter) for letter in found], is_complete)


class _Hub:
    """An event hub: its events stay, so that one between received ones without a record was passed over."""

    def __init__(self, site: "HubSite", hub: str) -> None:
        self._site = site
        self._hub = hub

    async def look(self, part: int, gaps: Sequence[Gap], high: int) -> Seen | None:  # noqa: ARG002 - of an entity
        end = (await self._site.partitions(self._hub)).get(str(part))
        return Seen((), None) if end is not None and end.last >= high else None

    async def dead_letters(self, after: int) -> DeadLetters:  # noqa: ARG002 - a hub has none
        return DeadLetters((), is_complete=True)

    async def close(self) -> None:
        await self._site.close()
