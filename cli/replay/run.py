"""The run of `busway replay`."""

import asyncio
import contextlib
import os
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import NamedTuple

import typer

from cli.dead.duplicates import window_by_administration
from cli.dead.kinds import problems
from cli.dead.ledger_file import LedgerFile
from cli.dead.progress import run_to_end
from cli.dead.selection import filter_of
from cli.dead.summary import print_unevaluated
from cli.file_lock import locked
from cli.replay.delivery import ReplayDelivery
from cli.replay.messages import Messages
from cli.replay.plan import Plan, unfinished
from cli.replay.positions import position_of
from cli.topology.sites import Access
from shared.config.files import Configuration, load
from shared.config.models import TaskFile
from shared.errors import ConfigError, Problem
from shared.printable import printable
from shared.resend.ledger import Ledger
from shared.resend.pipeline_delivery import OPTIONS
from shared.resend.places import Destination, task_named
from shared.resend.run import Run
from shared.resend.source import CopySource

_SHOWN = 10


class Request(NamedTuple):
    """What was asked for."""

    task: str
    first: str | None
    last: str | None
    where: str | None
    partitions: list[str]
    copies: list[str]
    journal: str | None
    consumer_group: str | None
    rate: float | None
    admin: list[str]
    is_resumed: bool
    new_ids: bool


def replay_and_print(request: Request, folder: Path, *, dry_run: bool) -> bool:
    """Replay messages, or count them; return whether all were sent."""
    with problems():
        configuration = load(folder)
        task = task_named(request.task, configuration)
        if task is None:
            known = ", ".join(each.task for each in configuration.tasks)
            raise ConfigError([Problem(request.task, "unknown task", f"expected one of {known}")])
        if request.where is not None:
            filter_of(request.where)
        if dry_run and request.is_resumed:
            raise ConfigError([Problem("--dry-run", "does not go with --resume", "choose one of them")])
        if dry_run:
            return asyncio.run(_show(_new_plan(request, task), task, configuration, request, folder))
        with locked(Path("build/replay") / task.task / "replay"):
            plan = _plan(request, task)
            plan.write()
            return asyncio.run(_replay(plan, task, configuration, request, folder))
    return False


def _plan(request: Request, task: TaskFile) -> Plan:
    begun = unfinished(task.task)
    if request.is_resumed:
        given = _selecting(request)
        if given:
            text, hint = "is fixed by the replay that is resumed", "leave it out, or start another replay"
            raise ConfigError([Problem(each, text, hint) for each in given])
        if begun is None:
            raise ConfigError([Problem(f"task {task.task}", "has no replay to resume", "start one with --from")])
        begun.consumer_group = request.consumer_group or begun.consumer_group
        return begun
    if begun is not None:
        hint = f"continue it with --resume, or delete {begun.file} to give it up"
        raise ConfigError([Problem(f"task {task.task}", f"its replay {begun.identity} has not finished", hint)])
    return _new_plan(request, task)


def _selecting(request: Request) -> list[str]:
    """Return the options that say what a replay sends."""
    options = {
        "--from": request.first,
        "--to": request.last,
        "--where": request.where,
        "--partition": request.partitions,
        "--copies": request.copies,
        "--journal": request.journal,
        "--new-ids": request.new_ids,
    }
    return [name for name, value in options.items() if value]


def _new_plan(request: Request, task: TaskFile) -> Plan:
    now = datetime.now(UTC)
    if request.first is None:
        raise ConfigError([Problem("--from", "is missing", "expected a time, a duration, a sequence number, or start")])
    first = position_of(request.first, "--from", now)
    last = position_of(request.last or now.isoformat(), "--to", now)
    if first.is_behind(last):
        hint = "expected an earlier position than that of --to, which is now by default"
        raise ConfigError([Problem(f"--from {request.first}", "is behind the last message", hint)])
    return Plan(
        task.task,
        now.strftime("%Y%m%dT%H%M%SZ"),
        first,
        last,
        request.where,
        request.partitions,
        request.copies,
        request.journal,
        request.consumer_group,
        request.new_ids,
    )


async def _show(plan: Plan, task: TaskFile, configuration: Configuration, request: Request, folder: Path) -> bool:
    counts: Counter[str] = Counter()
    ends: dict[str, tuple[int, int]] = {}
    messages = Messages(plan, task, configuration, os.environ, folder)
    async with contextlib.aclosing(messages.pages()) as pages:
        async for page in pages:
            for _, each in page:
                name = "" if each.origin.partition is None else f" in partition {each.origin.partition}"
                low, high = ends.get(name, (each.number or 0, each.number or 0))
                ends[name] = min(low, each.number or 0), max(high, each.number or 0)
                counts[name] += 1
    typer.echo(f"{task.task}: would replay {counts.total():,} messages")
    for name, count in sorted(counts.items()):
        typer.echo(f"{count:>8,}{name}, sequence numbers {ends[name][0]} to {ends[name][1]}")
    if messages.not_found:
        typer.echo(f"{len(messages.not_found):>8,} without a copy: name an entity that has them with --copies")
    is_all = _print_problems(messages)
    for line in await _warnings(task, configuration, request):
        typer.echo(line)
    return is_all


async def _warnings(task: TaskFile, configuration: Configuration, request: Request) -> list[str]:
    """Return what duplicate detection at the targets does to copies with the same id."""
    if request.new_ids:
        return []
    window_of = window_by_administration(configuration, Access.of(request.admin, None, configuration.connections))
    found = []
    for target in task.targets():
        place = Destination(target.connection, configuration.site(target.connection), target.entity)
        try:
            window = await window_of(place)
        except ConfigError:
            found.append(f"{place}: it is not known whether it drops copies as duplicates; --new-ids prevents that")
            continue
        if window is not None:
            found.append(f"{place} drops copies of what it has seen within {window}; --new-ids prevents that")
    return found


async def _replay(plan: Plan, task: TaskFile, configuration: Configuration, request: Request, folder: Path) -> bool:
    messages = Messages(plan, task, configuration, os.environ, folder)
    ledger = Ledger(LedgerFile(plan.ledger), plan.name)
    delivery = ReplayDelivery(plan, ledger, configuration, os.environ)
    async with ledger, delivery.opened(configuration, os.environ, replay=plan.identity):
        options = OPTIONS._replace(rate=request.rate)
        make = partial(Run, lambda _: CopySource(messages.pages()), delivery, None, options)
        result = await run_to_end(make, "replayed", None)
    plan.is_finished = result.error is None and not result.is_stopped
    plan.write()
    typer.echo(f"replay {plan.name}")
    if plan.is_finished and not (delivery.outcomes or result.sent_before or messages.not_found):
        typer.echo("       0 messages between these positions")
    for outcome, count in delivery.outcomes.most_common():
        typer.echo(f"{count:>8,} {outcome}")
    if result.sent_before:
        typer.echo(f"{result.sent_before:>8,} not sent: an earlier run had sent them")
    if delivery.again:
        typer.echo(f"{delivery.again:>8,} of them may arrive twice: an interrupted run may have sent them")
    if messages.not_found:
        numbers = ", ".join(messages.not_found[:_SHOWN])
        typer.echo(f"{len(messages.not_found):>8,} without a copy (sequence number {numbers}): see --copies")
    is_all = _print_problems(messages)
    typer.echo(f"ledger: {plan.ledger}")
    if result.error is not None:
        typer.echo(f"ended early: {printable(str(result.error))}; continue with --resume", err=True)
    if result.is_stopped:
        typer.echo("stopped; continue with --resume", err=True)
    return plan.is_finished and is_all


def _print_problems(messages: Messages) -> bool:
    """Print what could not be read or evaluated; return whether all messages were found."""
    for problem in messages.unread:
        typer.echo(printable(problem), err=True)
    print_unevaluated(messages.selection.unevaluated)
    return not (messages.not_found or messages.unread or messages.selection.unevaluated)
