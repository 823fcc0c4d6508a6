"""The run of `busway checkpoints`."""

import asyncio
import logging
import os
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

import typer

from cli.checkpoints.blobs import Checkpoint, CheckpointStore, opened_store
from cli.dead.kinds import problems
from local.host.event_hubs_connection import EventHub
from shared.azure.backlogs import HubSite
from shared.azure.connections import NAMESPACE_SUFFIX, event_hub_client, setting_problem
from shared.azure.receivers.connection import Connection
from shared.config.files import Configuration, load
from shared.config.models import DEFAULT_CONSUMER_GROUP, TaskFile
from shared.errors import ConfigError, Problem, TargetRefused
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.message.waiting import PartitionEnd
from shared.printable import printable
from shared.resend.places import task_named

_READ_SECONDS = 10.0
# The clocks of the hub and of the storage account differ.
_CLOCKS = timedelta(minutes=1)


class _Judged(NamedTuple):
    """A checkpoint, and why it belongs to an earlier hub, None if it does not."""

    checkpoint: Checkpoint
    problem: str | None


def show_or_reset(name: str, folder: Path, *, reset: bool, partitions: list[str], dry_run: bool) -> bool:
    """Print the checkpoints of a task, and delete those of an earlier hub; return whether none of these is left."""
    logging.getLogger("azure").setLevel(logging.CRITICAL)
    with problems():
        configuration = load(folder)
        task = task_named(name, configuration)
        if task is None or task.source.hub is None:
            known = ", ".join(each.task for each in configuration.tasks if each.source.hub) or "a task with a hub"
            raise ConfigError([Problem(name, "is not a task that reads an event hub", f"expected one of {known}")])
        if (partitions or dry_run) and not reset:
            option = "--partition" if partitions else "--dry-run"
            raise ConfigError([Problem(option, "only goes with --reset", "add --reset, or leave it out")])
        setting = configuration.connections[task.source.connection].key
        problem = setting_problem(setting, os.environ)
        if problem is not None:
            raise ConfigError([problem])
        connection = Connection(setting, os.environ.get(setting), os.environ.get(setting + NAMESPACE_SUFFIX))
        hub = EventHub(connection, task.source.hub, task.source.consumer_group or DEFAULT_CONSUMER_GROUP)
        with opened_store(os.environ, hub.namespace, hub.name, hub.consumer_group) as store:
            found = asyncio.run(_judge(store.read(), task, configuration, hub))
            if not reset:
                return not any(each.problem for each in found)
            return _reset(store, found, partitions, dry_run=dry_run)
    return False


async def _judge(found: list[Checkpoint], task: TaskFile, configuration: Configuration, hub: EventHub) -> list[_Judged]:
    """Return the checkpoints with what is wrong with them, and print a line for each partition."""
    alias = task.source.connection
    client = partial(event_hub_client, configuration.connections[alias].key, os.environ)
    site = HubSite(configuration.site(alias), client)
    try:
        ends = await site.partitions(hub.name)
        judged = [_Judged(each, await _problem(each, ends, hub)) for each in found]
    finally:
        await site.close()
        await hub.close()
    typer.echo(f"{configuration.site(alias)}/{hub.where}, read by {task.task}")
    _print(ends, judged)
    return judged


async def _problem(each: Checkpoint, ends: Mapping[str, PartitionEnd], hub: EventHub) -> str | None:
    end = ends.get(each.partition)
    if end is None:
        return "the hub has no such partition"
    if each.number is None:
        return None
    if each.number > end.last:
        return f"behind the last event, {end.last}"
    if end.is_empty or each.number < end.first:
        return None
    enqueued = await _enqueued(hub, each.partition, each.number)
    if enqueued is not None and enqueued > round((each.modified + _CLOCKS).timestamp() * 1000):
        return "written before the hub had this event"
    return None


async def _enqueued(hub: EventHub, name: str, number: int) -> int | None:
    """Return when the hub enqueued an event, in milliseconds since 1970 UTC; None if it no longer has it."""
    opened = await hub.open(name, number - 1 if number else "-1", 0)
    try:
        for each in await opened.link.receive(1, _READ_SECONDS):
            arrival = Message.received(each.payload, Origin("", hub.name, name)).arrival
            if arrival.sequence_number == number:
                return arrival.enqueued_time
    finally:
        await opened.close()
    return None


def _print(ends: Mapping[str, PartitionEnd], judged: list[_Judged]) -> None:
    typer.echo("partition  checkpoint  first event  last event")
    shown = {each.checkpoint.partition: each for each in reversed(judged)}
    for name in sorted({*ends, *shown}, key=lambda each: (len(each), each)):
        end, one = ends.get(name), shown.get(name)
        number = "none" if one is None else "unknown" if one.checkpoint.number is None else one.checkpoint.number
        first, last = ("-", "-") if end is None or end.is_empty else (str(end.first), str(end.last))
        problem = "" if one is None or one.problem is None else f"  of an earlier hub: {one.problem}"
        typer.echo(printable(f"{name:>9}  {number:>10}  {first:>11}  {last:>10}{problem}"))


def _reset(store: CheckpointStore, found: list[_Judged], partitions: list[str], *, dry_run: bool) -> bool:
    known = {each.checkpoint.partition for each in found}
    unknown = [each for each in partitions if each not in known]
    if unknown:
        raise ConfigError([Problem(f"--partition {unknown[0]}", "has no checkpoint")])
    # Of a partition with checkpoints of both forms, the host would use the other one.
    wanted = {*partitions} or {each.checkpoint.partition for each in found if each.problem is not None}
    chosen = [each.checkpoint for each in found if each.checkpoint.partition in wanted]
    names = ", ".join(sorted(wanted, key=lambda each: (len(each), each)))
    if not chosen:
        typer.echo("nothing to reset")
        return True
    owned = sorted({*store.owned()} & wanted)
    if owned:
        text = f"the app reads partition {', '.join(owned)}, or did less than two minutes ago"
        hint = "stop it, for example with the command that `busway pause TASK --az` prints, then reset again"
        if not dry_run:
            raise TargetRefused(f"checkpoints: {text}; {hint}")
        typer.echo(f"{text}: {hint}")
    if dry_run:
        typer.echo(f"would delete the checkpoints of partition {names}; nothing was changed")
        return True
    for each in chosen:
        store.delete(each)
    typer.echo(f"deleted the checkpoints of partition {names}: the app starts with their first event")
    return True
