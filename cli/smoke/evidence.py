"""What stopped a message that has not arrived: the places where it may be, the journal, and the state of its task."""

import asyncio
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from cli.journal import hours_between, journal_files
from cli.smoke.probes import Probe
from cli.smoke.watches import EntityWatch, is_of
from shared.assembly.status import StatusReader
from shared.errors import BuswayError
from shared.journal.hops import hops
from shared.journal.search import search
from shared.resend.places import DEAD_LETTERS, Place
from shared.tasks.files import Configuration


class JournalRecord(NamedTuple):
    """What the journal has of a message in the task that it was sent to."""

    outcome: str | None
    reason: str | None
    target: str | None
    milliseconds: float | None
    """From the source to the record of the outcome."""


class Journal:
    """The journal of the app, as far as it can be read from here."""

    def __init__(self, configuration: Configuration, folder: Path) -> None:
        """Read the journal that the configuration in *folder* names."""
        self._folder = folder
        self.unread: str | None = None if configuration.journal is not None else "the app has no journal"

    async def record(self, probe: Probe) -> JournalRecord | None:
        """Return what it has of *probe*, None if nothing; `unread` then says if it could not be read."""
        if self.unread is not None:
            return None
        try:
            return await asyncio.to_thread(self._record, probe)
        except BuswayError as error:
            self.unread = f"the journal cannot be read: {error}"
            return None

    def _record(self, probe: Probe) -> JournalRecord | None:
        now = datetime.now(UTC)
        hours = hours_between(now - timedelta(hours=1), now)
        found = search(journal_files(None, self._folder, hours), probe.message_id)
        for hop in hops(found.records):
            if hop.place.task != probe.route.task.task:
                continue
            outcome: Mapping[str, Any] | None = hop.outcome
            if outcome is None:
                return JournalRecord(None, None, None, None)
            taken = (int(outcome["journal_time"]) - hop.began) / 1000
            return JournalRecord(str(outcome["outcome"]), _text(outcome, "reason"), _text(outcome, "target"), taken)
        return None


async def obstacle(
    probe: Probe, journal: Journal, configuration: Configuration, settings: Mapping[str, str], run: str
) -> str:
    """Return what is known about a message that has not arrived."""
    facts: list[str] = []
    for place in _places(probe, configuration):
        watch = EntityWatch(place, settings)
        try:
            sights = await watch.look()
        except BuswayError as error:
            facts.append(str(error))
            continue
        finally:
            await watch.close()
        for sight in sights:
            if not is_of(sight.letter, probe, run):
                continue
            is_given_up = place.entity != probe.route.task.source.entity
            why = f", given up: {sight.letter.reason}" if is_given_up else ", where it still waits"
            described = f": {sight.letter.description}" if is_given_up and sight.letter.description else ""
            facts.append(f"it is in {place}{why}{described}")
    recorded = await journal.record(probe)
    if recorded is not None:
        what = "received, without an outcome" if recorded.outcome is None else recorded.outcome
        facts.append(f"journal: {what}{'' if recorded.reason is None else f', {recorded.reason}'}")
    elif journal.unread is not None:
        facts.append(journal.unread)
    else:
        facts.append("journal: no record of it")
    facts += await _state(probe, configuration, settings)
    return "; ".join(facts)


def _places(probe: Probe, configuration: Configuration) -> list[Place]:
    task = probe.route.task
    found = []
    if task.source.hub is None:
        source = _place(task.source.connection, task.source.entity, configuration)
        found += [source, source._replace(entity=source.entity + DEAD_LETTERS)]
    if task.rejects is not None and task.rejects.queue is not None:
        found.append(_place(task.rejects.connection, task.rejects.queue, configuration))
    return found


def _place(alias: str, entity: str, configuration: Configuration) -> Place:
    return Place(alias, configuration.site(alias), configuration.connections[alias].key, entity)


async def _state(probe: Probe, configuration: Configuration, settings: Mapping[str, str]) -> list[str]:
    """Return the state of the task with its reason, unless it runs or is idle."""
    reader = StatusReader(configuration, settings)
    try:
        status = await reader.read([probe.route.task.task])
    finally:
        await reader.close()
    (task,) = status.tasks
    facts = [f"the task is {task.state.value}{'' if task.reason is None else f': {task.reason}'}"]
    return facts if task.reason is not None or task.state.value not in {"idle", "running"} else []


def _text(record: Mapping[str, Any], name: str) -> str | None:
    value = record.get(name)
    return None if value is None else value if isinstance(value, str) else json.dumps(value)
