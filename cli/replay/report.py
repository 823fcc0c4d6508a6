"""What a replay sends and what is printed of it."""

import contextlib
import os
from collections import Counter
from pathlib import Path

import typer

from cli.letters.ledger_file import LedgerFile
from cli.letters.report import print_unevaluated
from cli.output import print_counts, waits_for
from cli.progress import run_to_end
from cli.replay.delivery import ReplayDelivery
from cli.replay.messages import Messages
from cli.replay.plan import Plan
from shared.assembly.outputs import closing_outputs
from shared.errors import ConfigError
from shared.printable import printable
from shared.protocols import Outcome
from shared.resend.ledger import DONE, Ledger
from shared.resend.pipeline_delivery import OPTIONS
from shared.resend.places import Destination
from shared.resend.routing import duplicate_windows
from shared.resend.run import Run
from shared.resend.source import copies
from shared.tasks.files import Configuration
from shared.tasks.models import TaskFile

_SHOWN = 10


async def show(plan: Plan, task: TaskFile, configuration: Configuration, folder: Path) -> bool:
    """Count what would be replayed; return whether all of it was found."""
    waits_for(f"the source of {task.task}")
    counts: Counter[str] = Counter()
    ends: dict[str, tuple[int, int]] = {}
    messages, sent_before = Messages(plan, task, configuration, os.environ, folder), 0
    ledger = Ledger(LedgerFile(plan.ledger).copy(), plan.name)
    async with ledger, contextlib.aclosing(messages.pages()) as pages:
        async for page in pages:
            for key, letter in page:
                if ledger.state(key) in DONE:
                    sent_before += 1
                    continue
                name = "" if letter.origin.partition is None else f" in partition {letter.origin.partition}"
                low, high = ends.get(name, (letter.number or 0, letter.number or 0))
                ends[name] = min(low, letter.number or 0), max(high, letter.number or 0)
                counts[name] += 1
    typer.echo(f"{task.task}: would replay {counts.total():,} messages")
    for name, count in sorted(counts.items()):
        typer.echo(f"{count:>8,}{name}, sequence numbers {ends[name][0]} to {ends[name][1]}")
    print_counts(
        (sent_before, "were sent before the replay was interrupted"),
        (len(messages.not_found), "without a copy: name an entity that has them with --copies"),
    )
    is_all = _print_problems(messages)
    if not plan.new_ids:
        for line in await _warnings(task, configuration):
            typer.echo(line)
    return is_all


async def _warnings(task: TaskFile, configuration: Configuration) -> list[str]:
    """Return what duplicate detection at the targets does to copies with the same id."""
    window_of = duplicate_windows(configuration, os.environ, "")
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


async def replay(plan: Plan, task: TaskFile, configuration: Configuration, folder: Path, rate: float | None) -> bool:
    """Send the messages; return whether all were sent."""
    messages = Messages(plan, task, configuration, os.environ, folder)
    ledger = Ledger(LedgerFile(plan.ledger), plan.name)
    delivery = ReplayDelivery(plan, ledger, configuration, os.environ)
    async with (
        ledger,
        closing_outputs(configuration, os.environ) as outputs,
        delivery.opened(configuration, os.environ, outputs, replay=plan.identity),
    ):
        run = Run(copies(messages.pages()), delivery, None, OPTIONS._replace(rate=rate))
        result = await run_to_end(run, "replayed", None)
    plan.is_finished = result.is_complete
    plan.write()
    typer.echo(f"replay {plan.name}")
    sent_before = result.sent_before + delivery.seen
    if plan.is_finished and not (delivery.outcomes or sent_before or messages.not_found):
        typer.echo("       0 messages between these positions")
    numbers = ", ".join(messages.not_found[:_SHOWN])
    new = delivery.outcomes - Counter({Outcome.SENT: delivery.seen})
    print_counts(
        *((count, str(outcome)) for outcome, count in new.most_common()),
        (sent_before, "not sent: an earlier run had sent them"),
        (delivery.again, "of them may arrive twice: they were sent before, and no answer came"),
        (len(result.left) if result.error is None else 0, "left: the task gave no result for them"),
        (len(messages.not_found), f"without a copy (sequence number {numbers}): see --copies"),
    )
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
