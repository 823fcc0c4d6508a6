"""The run of `busway replay`."""

import asyncio
import contextlib
import os
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import typer

from cli.dead.duplicates import window_by_administration
from cli.dead.kinds import problems
from cli.dead.ledger_file import LedgerFile
from cli.dead.progress import progress, stopped_by_signals
from cli.dead.selection import filter_of
from cli.dead.summary import print_unevaluated
from cli.file_lock import locked
from cli.replay.messages import NotFound, Page, Replayed, Unread, messages
from cli.replay.plan import Plan, unfinished
from cli.replay.positions import position_of
from cli.replay.replaying import Replay, opened
from cli.topology.sites import Access
from shared.config.files import Configuration, load
from shared.config.models import TaskFile
from shared.errors import ConfigError, MessageRejected, Problem, TargetRefused, TargetUnavailable
from shared.message.message import Message
from shared.message.rule_properties import RuleProperties
from shared.printable import printable
from shared.resend.ledger import Ledger
from shared.resend.places import Destination, task_named

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
    missing = unread = 0
    selected = _Filter(plan.where)
    async with contextlib.aclosing(messages(plan, task, configuration, os.environ, folder)) as pages:
        async for page in pages:
            for each in selected.of(page):
                missing += isinstance(each, NotFound)
                if isinstance(each, Unread):
                    unread += 1
                    typer.echo(printable(each.problem), err=True)
                if isinstance(each, Replayed):
                    name = "" if each.partition is None else f" in partition {each.partition}"
                    number = each.arrival.sequence_number or 0
                    low, high = ends.get(name, (number, number))
                    ends[name] = min(low, number), max(high, number)
                    counts[name] += 1
    typer.echo(f"{task.task}: would replay {counts.total():,} messages")
    for name, count in sorted(counts.items()):
        typer.echo(f"{count:>8,}{name}, sequence numbers {ends[name][0]} to {ends[name][1]}")
    if missing:
        typer.echo(f"{missing:>8,} without a copy: name an entity that has them with --copies")
    print_unevaluated(selected.unevaluated)
    for line in await asyncio.to_thread(_warnings, task, configuration, request):
        typer.echo(line)
    return not (missing or unread or selected.unevaluated)


def _warnings(task: TaskFile, configuration: Configuration, request: Request) -> list[str]:
    """Return what duplicate detection at the targets does to copies with the same id."""
    if request.new_ids:
        return []
    window_of = window_by_administration(configuration, Access.of(request.admin, None, configuration.connections))
    found = []
    for target in task.targets():
        place = Destination(target.connection, configuration.site(target.connection), target.entity)
        try:
            window = window_of(place)
        except ConfigError:
            found.append(f"{place}: it is not known whether it drops copies as duplicates; --new-ids prevents that")
            continue
        if window is not None:
            found.append(f"{place} drops copies of what it has seen within {window}; --new-ids prevents that")
    return found


async def _replay(plan: Plan, task: TaskFile, configuration: Configuration, request: Request, folder: Path) -> bool:
    selected = _Filter(plan.where)
    ledger = Ledger(LedgerFile(plan.ledger), f"{plan.task}~{plan.identity}")
    async with ledger, opened(plan, task, configuration, os.environ, ledger) as run:
        try:
            await run.resolve(configuration, os.environ)
            with stopped_by_signals(run.stop), progress("replayed", None) as advance:
                async with contextlib.aclosing(messages(plan, task, configuration, os.environ, folder)) as pages:
                    async for page in pages:
                        before = run.counts.total()
                        await run.send(selected.of(page), request.rate)
                        advance(run.counts.total() - before)
                        if run.is_stopped or run.error is not None:
                            break
        except (TargetUnavailable, TargetRefused) as error:
            run.error = error
        plan.is_finished = run.error is None and not run.is_stopped
        plan.write()
        _print(plan, run)
        print_unevaluated(selected.unevaluated)
        return plan.is_finished and not (run.not_found or run.unread or selected.unevaluated)


class _Filter:
    """The messages for which a rule is true, and how many it could not be evaluated for."""

    def __init__(self, where: str | None) -> None:
        """Compile the rule, if there is one."""
        self.unevaluated = 0
        self._where = None if where is None else filter_of(where)

    def of(self, page: Page) -> Page:
        """Return what is selected of *page*."""
        return [each for each in page if not isinstance(each, Replayed) or self._takes(each)]

    def _takes(self, each: Replayed) -> bool:
        if self._where is None:
            return True
        try:
            return self._where.matches(RuleProperties(Message.received(each.content, each.arrival.origin)))
        except MessageRejected:
            self.unevaluated += 1
            return False


def _print(plan: Plan, run: Replay) -> None:
    typer.echo(f"replay {plan.task}~{plan.identity}")
    if plan.is_finished and not (run.counts or run.before or run.not_found):
        typer.echo("       0 messages between these positions")
    for outcome, count in run.counts.most_common():
        typer.echo(f"{count:>8,} {outcome}")
    if run.before:
        typer.echo(f"{run.before:>8,} not sent: an earlier run had sent them")
    if run.again:
        typer.echo(f"{run.again:>8,} of them may arrive twice: an interrupted run may have sent them")
    if run.not_found:
        numbers = ", ".join(each.split("/")[1] for each in run.not_found[:_SHOWN])
        typer.echo(f"{len(run.not_found):>8,} without a copy (sequence number {numbers}): see --copies")
    for problem in run.unread:
        typer.echo(printable(problem), err=True)
    typer.echo(f"ledger: {plan.ledger}")
    if run.error is not None:
        typer.echo(f"ended early: {printable(str(run.error))}; continue with --resume", err=True)
    if run.is_stopped:
        typer.echo("stopped; continue with --resume", err=True)
