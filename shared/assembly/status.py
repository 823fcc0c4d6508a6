"""Builds the status of a configuration: what publishes it in the app, and what reads it."""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from shared.assembly.last_reconciliation import LastReconciliation, last_reconciliation
from shared.clock import Clock, SystemClock
from shared.ends.kind import Kind
from shared.errors import BuswayError, ConfigError, TargetRefused, TargetUnavailable
from shared.losses.report import WatchState
from shared.message.waiting import DEAD_LETTERS, PartitionEnd, TopicDeadLetters, Waiting
from shared.status.facts import Look, TaskPlaces
from shared.status.merge import instance_status, losses, points, task_status
from shared.status.model import (
    DeadLetters,
    History,
    Losses,
    Place,
    SiteStatus,
    Status,
    TaskStatus,
)
from shared.status.publisher import Identity, Publisher
from shared.status.recorder import TaskRecorder
from shared.status.report import GONE_SECONDS
from shared.status.store import FoundHour, Reports, StatusStore, hour_of
from shared.status.times import iso
from shared.status.verdict import verdict
from shared.stores.storage_account import HOST_STORAGE, SETTING_FORM, host_storage, open_container
from shared.tasks.files import Configuration
from shared.tasks.heartbeats import heartbeat_targets
from shared.tasks.models import TaskFile
from shared.tasks.routes import Target
from shared.tasks.source import Source

if TYPE_CHECKING:
    from shared.stores.container import BlobContainer

# Set by Azure for every instance of an app.
_INSTANCE, _APP, _REGION = "WEBSITE_INSTANCE_ID", "WEBSITE_SITE_NAME", "REGION_NAME"
_SUFFIX = "-status"
# Azure Storage, "Naming and referencing containers".
_LONGEST_NAME = 63
_CLOCK_SECONDS = 5.0
_FIRST_ANSWER_SECONDS = 7.0
# `busway package` writes it into the app.
_VERSION_FILE = Path(__file__).parents[2] / "busway-version"
_RECONCILED_EVERY = timedelta(minutes=5)
_MOST_SUBSCRIPTIONS = 100


class _Storage(NamedTuple):
    """Where the status is kept."""

    setting: str
    container: str
    settings: Mapping[str, str]


def _storage(configuration: Configuration, settings: Mapping[str, str]) -> _Storage:
    """Return the place beside the journal, whose own container may be closed to changes, or else the host's storage."""
    journal = configuration.journal
    if journal is not None and journal.blob is not None:
        name = f"{journal.blob.container[: _LONGEST_NAME - len(_SUFFIX)].rstrip('-')}{_SUFFIX}"
        return _Storage(journal.blob.setting, name, settings)
    return _Storage(HOST_STORAGE, f"busway{_SUFFIX}", host_storage(settings))


def store_problem(configuration: Configuration, settings: Mapping[str, str]) -> str | None:
    """Return why the configuration has no place for the status, None if it has one."""
    storage = _storage(configuration, settings)
    problem = SETTING_FORM.problem(storage.setting, storage.settings)
    return None if problem is None else str(problem)


def open_store(configuration: Configuration, settings: Mapping[str, str]) -> StatusStore:
    """Return the store of the status; raises ConfigError."""
    return StatusStore(open_status_container(configuration, settings))


def open_status_container(configuration: Configuration, settings: Mapping[str, str]) -> "BlobContainer":
    """Return the container of the status; raises ConfigError."""
    storage = _storage(configuration, settings)
    return open_container(storage.setting, storage.settings, storage.container, errors_name="status ")


def publisher(
    configuration: Configuration,
    settings: Mapping[str, str],
    recorders: Sequence[TaskRecorder],
    clock: Clock | None = None,
) -> Publisher | None:
    """Return what publishes the status of this process, None without a place for it."""
    if store_problem(configuration, settings) is not None:
        return None
    instance = settings.get(_INSTANCE) or f"{socket.gethostname()}-{os.getpid()}"
    identity = Identity(instance, settings.get(_APP), settings.get(_REGION), _version())
    return Publisher(partial(open_store, configuration, settings), recorders, identity, clock)


def recorder_of(file: TaskFile, clock: Clock | None = None) -> TaskRecorder:
    """Return the recorder of a task."""
    return TaskRecorder(file.task, clock, is_hub=file.source.hub is not None)


type _Answer = Waiting | Mapping[str, PartitionEnd] | TopicDeadLetters
type _Question = Callable[[Any], Awaitable[_Answer]]


class _Reading(NamedTuple):
    """What one reading has from the storage of the journal."""

    now: datetime
    reports: Reports | str
    hours: Sequence[FoundHour]
    losses: Mapping[str, WatchState] | str


class StatusReader:
    """Reads the status of the tasks of a configuration; keeps its connections open until `close`."""

    def __init__(
        self,
        configuration: Configuration,
        settings: Mapping[str, str],
        clock: Clock | None = None,
        most_peeked: int | None = None,
    ) -> None:
        """
        Open connections with *settings* when they are needed.

        *most_peeked* messages of an entity are counted where the right to manage is missing.
        """
        self._most_peeked = most_peeked
        self._configuration = configuration
        self._settings = settings
        self._clock = clock or SystemClock()
        self._sites: dict[str, Any] = {}
        self._store: StatusStore | None = None
        self._reconciliation: tuple[datetime, LastReconciliation] | None = None

    async def read(self, tasks: Iterable[str] = ()) -> Status:
        """Return the status of all tasks, or of *tasks*; raises nothing that concerns one site only."""
        wanted = set(tasks)
        files = [task for task in self._configuration.tasks if not wanted or task.task in wanted]
        sites = _Sites(self)
        reading, looks, (reconciled, findings, of_hour) = await asyncio.gather(
            self._read_reports(has_losses=True),
            asyncio.gather(*(sites.look(file) for file in files)),
            self._reconciled(),
        )
        statuses: list[TaskStatus] = []
        for file, look in zip(files, looks, strict=True):
            status = task_status(self.places(file), look, reading.reports, reading.hours, reading.now)
            status.reconciliation = findings.get(file.task)
            found = reading.losses if isinstance(reading.losses, str) else self._losses(file, reading)
            if isinstance(found, str):
                status.unknown["losses"] = found
            else:
                status.losses = found
            statuses.append(status)
        unknown = {}
        if isinstance(reading.reports, str):
            unknown["instances"] = reading.reports
        if isinstance(reconciled, str):
            unknown["reconciliation"] = reconciled
        site_statuses = sites.statuses()
        gaps = [site_status.reason or "" for site_status in site_statuses if site_status.reachable is False]
        gaps += [unknown["instances"]] if "instances" in unknown else []
        health, sentence = verdict(statuses, gaps)
        return Status(
            time=iso(reading.now),
            health=health,
            sentence=sentence,
            tasks=statuses,
            sites=site_statuses,
            instances=None
            if isinstance(reading.reports, str)
            else [instance_status(instance, reading.now) for instance in reading.reports.instances],
            reconciliation=None if isinstance(reconciled, str) else reconciled,
            last_hour=of_hour,
            notes=_notes(reading),
            unknown=unknown,
        )

    async def history(self, tasks: Iterable[str] = (), hours: int = 3) -> History:
        """Return the charts of the last *hours* of all tasks, or of *tasks*."""
        wanted = set(tasks)
        names = [task.task for task in self._configuration.tasks if not wanted or task.task in wanted]
        reading = await self._read_reports(hours)
        last = int(reading.now.timestamp()) // 60
        first = last - hours * 60 + 1
        reports = None if isinstance(reading.reports, str) else reading.reports
        return History(
            first=iso(datetime.fromtimestamp(first * 60, UTC)),
            last=iso(datetime.fromtimestamp(last * 60, UTC)),
            tasks={name: points(reading.hours, reports, name, first, last) for name in names},
            unknown={} if reports is not None else {"tasks": str(reading.reports)},
        )

    def _losses(self, file: TaskFile, reading: _Reading) -> Losses | str:
        """Return the losses of a task; tasks that take from the same source are watched together."""
        journal = self._configuration.journal
        if journal is None or journal.blob is None:
            return "losses are found only with a journal in blobs"
        states = reading.losses if not isinstance(reading.losses, str) else {}
        if not self._configuration.connections[file.source.connection].is_namespace:
            return "the source does not number its messages"
        if file.journal is False:
            return "a task with `journal: off` cannot be watched for losses"
        state = states.get(file.task) or next((state for state in states.values() if file.task in state.offsets), None)
        return losses(state, reading.now, is_hub=file.source.hub is not None)

    async def close(self) -> None:
        """Close all connections."""
        closing = [each.close() for each in (*self._sites.values(), self._store) if each is not None]
        await asyncio.gather(*closing)
        self._sites.clear()
        self._store = None

    def places(self, file: TaskFile) -> TaskPlaces:
        """Return the entities of a task."""
        targets = dict.fromkeys(self.place(branch.target) for branch in file.branches())
        kind = self._configuration.connections[file.source.connection].kind
        rejects = None if file.rejects is None else self.place(file.rejects)
        heartbeats = [self.place(target) for target in heartbeat_targets(file)]
        every = 0.0 if file.heartbeat is None else file.heartbeat.every.total_seconds()
        lanes = file.levers.lanes
        return TaskPlaces(
            file.task,
            self.place(file.source),
            kind,
            tuple(targets),
            rejects,
            lanes,
            heartbeats,
            every,
            is_hub=file.source.hub is not None,
        )

    def place(self, end: Source | Target) -> Place:
        """Return the entity of a source or target."""
        return Place(self._configuration.site(end.connection), end.entity)

    def site_name(self, alias: str) -> str:
        """Return the name of a connection's site."""
        return self._configuration.site(alias)

    def site_names(self) -> Iterable[str]:
        """Return the names of all sites in the order in which the connections name them first."""
        return dict.fromkeys(map(self._configuration.site, self._configuration.connections))

    def end(self, alias: str) -> Kind:
        """Return the kind of a connection."""
        return self._configuration.connections[alias].end

    def site(self, alias: str) -> Any:  # noqa: ANN401 - what it has depends on the kind
        """Return the open look at a connection's entities; raises ConfigError if its setting cannot be used."""
        connection = self._configuration.connections[alias]
        key, name = connection.key, self._configuration.site(alias)
        # One setting may serve both kinds: an emulator has queues and hubs at one address.
        kept = f"{connection.kind} {key}"
        if connection.setting is None:
            raise TargetRefused(f"{name}: its connection has a secret and no setting, which this look needs")
        if kept not in self._sites:
            problem = connection.end.setting.problem(key, self._settings, self._configuration.hubs(alias))
            if problem is not None:
                raise ConfigError([problem])
            if connection.end.open_site is None:
                raise TargetRefused(f"{name}: a service of kind {connection.kind} does not show what waits")
            self._sites[kept] = connection.end.open_site(name, key, self._settings, self._most_peeked)
        return self._sites[kept]

    async def _read_reports(self, hours: int = 1, *, has_losses: bool = False) -> _Reading:
        now = self._clock.now()
        problem = store_problem(self._configuration, self._settings)
        if problem is not None:
            return _Reading(now, problem, (), problem)
        try:
            if self._store is None:
                self._store = open_store(self._configuration, self._settings)
            try:
                async with asyncio.timeout(_FIRST_ANSWER_SECONDS):
                    reports = await self._store.reports(now, GONE_SECONDS)
            except TimeoutError:
                text = f"instances: the storage account has not answered in {_FIRST_ANSWER_SECONDS:.0f} s"
                return _Reading(now, text, (), text)
            last = hour_of(reports.now)
            found = await self._store.history(range(last - hours, last + 1))
            watched = await self._store.losses(task.task for task in self._configuration.tasks) if has_losses else {}
        except BuswayError as error:
            return _Reading(now, str(error), (), str(error))
        return _Reading(reports.now, reports, found, watched)

    async def _reconciled(self) -> LastReconciliation:
        now = self._clock.now()
        if self._reconciliation is None or now - self._reconciliation[0] >= _RECONCILED_EVERY:
            self._reconciliation = now, await last_reconciliation(self._settings, now)
        return self._reconciliation[1]


class _Sites:
    """One look at all sites: an entity is asked for once, and a site that does not answer is not asked again."""

    def __init__(self, reader: StatusReader) -> None:
        self._reader = reader
        self._asked: dict[tuple[str, str], asyncio.Task[_Answer | BuswayError]] = {}
        self._reached: dict[str, SiteStatus] = {}

    async def look(self, file: TaskFile) -> Look:
        found, dead = await asyncio.gather(self._source(file.source), asyncio.gather(*self._dead_letters(file)))
        if isinstance(found, BuswayError):
            return Look(str(found), dead, isinstance(found, TargetRefused))
        return Look(found, dead)  # type: ignore[arg-type] # never a number

    async def _source(self, source: Source) -> _Answer | BuswayError:
        if source.webhook is not None:
            return Waiting(0, is_minimum=True)  # Event Grid does not show what it still delivers
        if source.hub is None:
            return await self._waiting(source.connection, source.entity)
        hub = source.hub
        found = await self._ask(source.connection, hub, lambda site: site.partitions(hub))
        if source.partitions is not None and isinstance(found, Mapping):
            wanted = set(map(str, source.partitions))
            return {name: end for name, end in found.items() if name in wanted}
        return found

    async def _waiting(self, alias: str, entity: str) -> _Answer | BuswayError:
        return await self._ask(alias, entity, lambda site: site.waiting(entity))

    def _dead_letters(self, file: TaskFile) -> Iterable[Awaitable[DeadLetters]]:
        source = file.source
        if source.hub is None and source.webhook is None and not source.dead_letter:
            yield self._dead_letters_of(source, source.entity)
        for target in {branch.target.entity: branch.target for branch in file.branches()}.values():
            if target.hub is None and self._reader.end(target.connection).has_dead_letters:
                yield self._dead_letters_of(target, target.entity)

    async def _dead_letters_of(self, end: Source | Target, entity: str) -> DeadLetters:
        place = self._reader.place(end)
        found: _Answer | BuswayError
        if isinstance(end, Target) and end.topic is not None:
            topic = end.topic
            count = lambda site: site.topic_dead_letters(topic)  # noqa: E731 - the kind of the connection gives the site
            found = await self._ask(end.connection, f"{topic}/Subscriptions", count)
        else:
            found = await self._waiting(end.connection, entity + DEAD_LETTERS)
        if isinstance(found, TopicDeadLetters):
            return _of_topic(place, found.by_subscription)
        if isinstance(found, Waiting):
            return DeadLetters(place, found.messages, found.is_minimum)
        return DeadLetters(place, unknown=str(found))

    async def _ask(self, alias: str, what: str, question: _Question) -> _Answer | BuswayError:
        # Names of entities have no case.
        key = alias, what.lower()
        if key not in self._asked:
            self._asked[key] = asyncio.ensure_future(self._answer(alias, question))
        return await self._asked[key]

    async def _answer(self, alias: str, question: _Question) -> _Answer | BuswayError:
        name = self._reader.site_name(alias)
        status = self._reached.setdefault(name, SiteStatus(site=name, kind=self._reader.end(alias).name))
        if status.reachable is False:
            return TargetUnavailable(status.reason or "")
        try:
            answer = await question(self._reader.site(alias))
        except TargetUnavailable as error:
            status.reachable, status.reason = False, str(error)
            return error
        except TargetRefused as error:
            return error
        except ConfigError as error:
            status.reachable, status.reason = False, str(error)
            return TargetUnavailable(str(error))
        if status.reachable is None:
            status.reachable = True
        return answer

    def statuses(self) -> list[SiteStatus]:
        """Return the sites in the order of the configuration."""
        return [self._reached[name] for name in self._reader.site_names() if name in self._reached]


def _of_topic(topic: Place, found: Mapping[str, int]) -> DeadLetters:
    """Return the dead letters of a topic: in all subscriptions, and in those with the most."""
    most = sorted(found, key=lambda name: (-found[name], name))[:_MOST_SUBSCRIPTIONS]
    return DeadLetters(topic, sum(found.values()), subscriptions={name: found[name] for name in most})


def _notes(reading: _Reading) -> list[str]:
    if isinstance(reading.reports, str):
        return []
    notes = [f"{name} is not a report of an instance; delete it" for name in reading.reports.damaged]
    for instance in reading.reports.instances:
        status = instance_status(instance, reading.now)
        if status.alive and abs(status.clock_ahead) > _CLOCK_SECONDS:
            notes.append(f"the clock of instance {status.instance} is {status.clock_ahead:+.0f} s off")
    return notes


def _version() -> str | None:
    try:
        return version("busway")
    except PackageNotFoundError:
        pass  # a deployed app is not installed
    try:
        return _VERSION_FILE.read_text(encoding="utf-8").strip()
    except OSError:
        return None
