"""Builds the journals and the taps of a configuration; all of them write to one sink."""

import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from shared.clock import Clock, SystemClock
from shared.ends.service_bus.clients import service_bus_client
from shared.errors import ConfigError, Problem
from shared.journal.event_hub import EventHubSink
from shared.journal.log import LogJournal
from shared.journal.peeking_tap import Marks, PeekingTap
from shared.journal.record import Role
from shared.journal.sink import Sink
from shared.journal.tap import Tap
from shared.journal.task import TaskJournal
from shared.message.arrival import Origin
from shared.message.replay import replay_name
from shared.protocols import Journal, Telemetry
from shared.rules.rule import Action, parse_action
from shared.stores.storage_account import SETTING_FORM, open_container
from shared.tasks.files import JOURNAL, Configuration
from shared.tasks.journal_models import TapFile
from shared.tasks.models import TaskFile
from shared.tasks.source import Source
from shared.tasks.taps import is_same_entity

SETTING = "BUSWAY_JOURNAL"
_ON, _OFF = "on", "off"
# Set by Azure for every instance of an app; a laptop has a host name.
_INSTANCE_SETTING = "WEBSITE_INSTANCE_ID"


def without_journal(configuration: Configuration, settings: Mapping[str, str]) -> Configuration:
    """Return *configuration* without its journal and taps if BUSWAY_JOURNAL is off; raises ConfigError."""
    choice = settings.get(SETTING) or _ON
    if choice not in (_ON, _OFF):
        raise ConfigError([Problem(SETTING, f"is {choice!r}, expected {_ON} or {_OFF}")])
    return configuration if choice == _ON else replace(configuration, journal=None, taps=())


class OutputBinding(NamedTuple):
    """The event hub of a function's output binding, by name and app setting, and the sink that collects its events."""

    sink: EventHubSink
    hub: str
    setting: str


class Journals:
    """The journal of every task of a configuration."""

    def __init__(
        self,
        configuration: Configuration,
        settings: Mapping[str, str],
        clock: Clock | None = None,
        *,
        sink: Sink | None = None,
        is_repair: bool = False,
        replay: str | None = None,
    ) -> None:
        """
        Write to *sink*, by default the place in journal.yaml; *is_repair* marks the records as those of a repair.

        With the id of a *replay* they are records of that replay, which is a task of its own in the journal.

        Raises ConfigError if it cannot be opened.
        """
        self._is_repair = is_repair or replay is not None
        self._replay = replay
        self._configuration = configuration
        self._settings = settings
        self._clock = clock
        self._sink = sink or _opened(configuration, settings, clock)

    async def close(self) -> None:
        """Close the sink; for tests and tools, as `Output.close`."""
        if self._sink is not None:
            await self._sink.close()

    def of(self, file: TaskFile, telemetry: Telemetry | None = None) -> Journal:
        """Return the journal of a task, by default the log; *telemetry* counts lost records."""
        if self._sink is None or file.journal is False:
            return LogJournal()
        return TaskJournal(
            file.task if self._replay is None else replay_name(file.task, self._replay),
            self._sink,
            is_hub=file.source.hub is not None,
            is_required=file.journal == "required",
            is_repair=self._is_repair,
            actions=actions_of(file),
            clock=self._clock,
            telemetry=telemetry,
        )

    def named(self, task: str) -> Journal:
        """Return the journal of a command that carries messages, as a task of its own whose source has partitions."""
        return LogJournal() if self._sink is None else TaskJournal(task, self._sink, is_hub=True, is_required=True)

    def binding(self) -> OutputBinding | None:
        """Return the output binding for the functions of tasks and taps, None if the journal needs none."""
        journal = self._configuration.journal
        if journal is None or journal.event_hub is None or not isinstance(self._sink, EventHubSink):
            return None
        connection = self._configuration.connections[journal.event_hub.connection]
        return OutputBinding(self._sink, journal.event_hub.hub, connection.key)

    def taps(self) -> Iterator[tuple[TapFile, Tap]]:
        """Yield the taps that receive messages from a trigger."""
        for file in self._configuration.taps:
            if file.tap.peek is None:
                yield file, self._tap(file)

    def peeking_taps(self) -> Iterator[tuple[TapFile, PeekingTap]]:
        """Yield the taps that a timer runs and that peek."""
        for file in self._configuration.taps:
            if file.tap.peek is not None and isinstance(self._sink, Marks):
                setting = self._configuration.connections[file.source.connection].key
                from shared.ends.service_bus.peek import peeker_opener  # noqa: PLC0415 - imports the SDK

                origin = self._origin(file.source)
                open_peeker = peeker_opener(partial(service_bus_client, setting, self._settings), origin)
                yield file, PeekingTap(self._tap(file), origin, open_peeker, self._sink)

    def _tap(self, file: TapFile) -> Tap:
        task = next(task for task in self._configuration.tasks if task.task == file.tap.of)
        if self._sink is None:
            raise ConfigError([Problem(self._configuration.place(file), "there is no journal to write to")])
        source = file.source
        return Tap(
            file.task,
            task.task,
            Role(file.tap.side),
            watched=self._origin(task.source),
            is_hub_watched=task.source.hub is not None,
            place=self._origin(file.source),
            target=f"{self._configuration.site(source.connection)}/{source.sent_to}",
            is_hub=file.source.hub is not None,
            has_same_numbers=is_same_entity(file, task),
            is_peek=file.tap.peek is not None,
            sink=self._sink,
            actions=actions_of(task),
            clock=self._clock,
        )

    def _origin(self, source: Source) -> Origin:
        return Origin(self._configuration.site(source.connection), source.entity)


def actions_of(file: TaskFile) -> list[Action]:
    """Return the actions of a task's rule and of its routes."""
    texts = [
        file.source.rule.action if file.source.rule is not None else None,
        *(route.action for route in file.routes),
    ]
    return [parse_action(text) for text in texts if text is not None]


def _opened(configuration: Configuration, settings: Mapping[str, str], clock: Clock | None) -> Sink | None:
    journal = configuration.journal
    instance = settings.get(_INSTANCE_SETTING) or f"{socket.gethostname()}{os.getpid()}"
    if journal is None or journal.blob is None:
        # As for blobs: each process of an instance numbers its batches from 1.
        started = round((clock or SystemClock()).now().timestamp() * 1000)
        return None if journal is None else EventHubSink(f"{instance}-{started}")
    problem = SETTING_FORM.problem(journal.blob.setting, settings)
    if problem is not None:
        where = f"{JOURNAL}: blob: app setting {problem.path}"
        raise ConfigError([Problem(where, problem.problem, problem.hint)])
    from shared.journal.blob import BlobSink  # noqa: PLC0415 - imports the SDK

    opener = partial(open_container, journal.blob.setting, settings, journal.blob.container, errors_name="journal ")
    return BlobSink(opener, instance, clock)
