"""`busway replay`: send messages of a task again."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import ConsumerGroup, Folder, Rate, Yes


def replay(
    task: Annotated[str, typer.Argument(metavar="TASK", help="The task through which the messages go again.")],
    *,
    first: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME|POSITION",
            help="The first message: an enqueued time in UTC (2026-11-23T08:00), a duration before now (2h), a "
            "sequence number, or `start`.",
        ),
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", metavar="TIME|POSITION", help="The last message, likewise. [default: now]")
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(metavar="SQL", help="Only messages for which a rule is true, as they are at the source."),
    ] = None,
    partition: Annotated[list[str] | None, typer.Option(help="Only this partition of a hub. Can be repeated.")] = None,
    copies: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONNECTION/ENTITY",
            help="For a queue or subscription: an entity that has copies of the messages. Can be repeated. [default: "
            "those of the task's taps at its source, and its dead-letter queue]",
        ),
    ] = None,
    journal: Annotated[
        str | None,
        typer.Option(
            metavar="PATH|URL", help="For a queue or subscription: the journal. [default: that of config/journal.yaml]"
        ),
    ] = None,
    consumer_group: ConsumerGroup = None,
    new_ids: Annotated[
        bool,
        typer.Option(
            "--new-ids",
            help="Give each copy another id, the same in every run, so that nobody drops it as a duplicate.",
        ),
    ] = False,
    rate: Rate = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the replay that was interrupted.")] = False,
    yes: Yes = False,
    config: Folder = Path("config"),
) -> None:
    """
    Send messages of a task again, through its own editors and routes, with the same ids and stamps.

    Events come from the hub, as long as it has them. Messages of a queue or subscription were removed: the journal says
    which the task received, and `--copies` names an entity that still has them. Each copy has the property
    `repl-replay`; in the journal and the reconciliation the replay is a task of its own.

    Exit code 0: all were sent, or withheld by the task. 1: some were not. Example:

        busway replay telemetry-west-to-east --from 2h --yes
    """
    import asyncio
    import contextlib

    from cli.files import locked
    from cli.letters.selection import filter_of
    from cli.output import print_only_shown
    from cli.places import single_task
    from cli.replay import report
    from cli.replay.plan import check_finished, lock_of, new_plan, resumed_plan
    from shared.tasks.files import load

    configuration = load(config)
    file = single_task(task, configuration)
    if where is not None:
        filter_of(where)
    selected = {
        "where": where,
        "partitions": partition or [],
        "copies": copies or [],
        "journal": journal,
        "new_ids": new_ids,
    }
    with locked(lock_of(file.task)) if yes else contextlib.nullcontext():
        if resume:
            options = ("--where", "--partition", "--copies", "--journal", "--new-ids")
            given = zip(("--from", "--to", *options), (first, last, *selected.values()), strict=True)
            plan = resumed_plan(file.task, [option for option, value in given if value])
            plan.consumer_group = consumer_group or plan.consumer_group
        else:
            if yes:
                check_finished(file.task)
            plan = new_plan(file.task, first, last, consumer_group=consumer_group, **selected)
        if yes:
            plan.write()
            is_complete = asyncio.run(report.replay(plan, file, configuration, config, rate))
        else:
            is_complete = asyncio.run(report.show(plan, file, configuration, config))
            print_only_shown()
    if not is_complete:
        raise typer.Exit(1)
