"""`busway dead` and `busway rejects`: messages that were given up."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import AdminAddresses, DryRun, Folder, OlderThan, Rate, UnclearChoice, Wait, Where
from shared.errors import ConfigError, Problem
from shared.resend.options import PATIENCE_SECONDS, Unclear

if TYPE_CHECKING:
    from shared.resend.places import Place
    from shared.resend.selection import Selection
    from shared.tasks.files import Configuration

_DEAD = "dead"

Entity = Annotated[
    str,
    typer.Argument(
        metavar="CONNECTION/ENTITY|TASK",
        help="A queue or TOPIC/Subscriptions/NAME, or a task.",
    ),
]
Reason = Annotated[str | None, typer.Option(help="Only messages with this reason.")]
Numbers = Annotated[
    list[int] | None, typer.Option("--number", help="Only the message with this sequence number. Can be repeated.")
]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first N of them.", metavar="N")]
All = Annotated[bool, typer.Option("--all", help="All messages, if nothing else selects some.")]


def list_(
    context: typer.Context,
    entity: Annotated[
        str | None,
        typer.Argument(
            metavar="[CONNECTION/ENTITY|TASK]",
            help="A queue or TOPIC/Subscriptions/NAME, or a task. [default: those of all tasks]",
        ),
    ] = None,
    *,
    where: Where = None,
    reason: Reason = None,
    older_than: OlderThan = None,
    number: Numbers = None,
    limit: Limit = None,
    each: Annotated[bool, typer.Option("--each", help="One line per message instead of groups.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    config: Folder = Path("config"),
) -> None:
    """Count the messages by reason, source and age; nothing is received. No body is shown."""
    from cli.letters.report import print_list
    from shared.resend.places import dead_letter_queues, rejects_queues
    from shared.tasks.files import load

    chosen, configuration = _selection(where, reason, older_than, number, limit), load(config)
    if entity is None:
        places = (dead_letter_queues if _command(context) == _DEAD else rejects_queues)(configuration)
        if not places:
            raise ConfigError(
                [Problem(f"busway {_command(context)} list", "no task has one", "name CONNECTION/ENTITY")]
            )
    else:
        places = [_place(context, entity, configuration)]
    asyncio.run(print_list(places, chosen, singly=each, as_json=as_json))


def show(
    context: typer.Context,
    entity: Entity,
    number: Annotated[int, typer.Argument(help="Its sequence number, the first column of `list --each`.")],
    *,
    body: Annotated[bool, typer.Option("--body/--no-body", help="Show the body on this terminal.")] = True,
    journal: Annotated[
        bool,
        typer.Option(
            "--journal/--no-journal", help="Show what the journals have of it; their files of four hours are read."
        ),
    ] = True,
    config: Folder = Path("config"),
) -> None:
    """Show one message: why it was given up, its properties with their types, its body, its journal records."""
    from cli.letters.detail import print_letter
    from shared.tasks.files import load

    place = _place(context, entity, load(config))
    asyncio.run(print_letter(place, number, config, with_body=body, with_journal=journal))


def resend(
    context: typer.Context,
    entity: Entity,
    *,
    where: Where = None,
    reason: Reason = None,
    older_than: OlderThan = None,
    number: Numbers = None,
    limit: Limit = None,
    everything: All = False,
    dry_run: DryRun = False,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="CONNECTION/ENTITY",
            help="Send to this queue, topic or event hub instead of the entity that they came from.",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Set a property, as SET in a rule's action. Can be repeated."),
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Remove a property. Can be repeated.")
    ] = None,
    editors: Annotated[
        str | None, typer.Option(metavar="TASK", help="First apply the editors of a task to each message.")
    ] = None,
    new_ids: Annotated[
        bool | None,
        typer.Option(
            "--new-ids/--same-ids",
            help="Give each message a new id, the same in every run, or send it with its own whatever happens. "
            "By default it keeps its id, and stays here if the entity would drop the copy as a duplicate.",
            show_default=False,
        ),
    ] = None,
    admin: AdminAddresses = None,
    rate: Rate = None,
    unclear: UnclearChoice = Unclear.LEAVE,
    wait: Wait = PATIENCE_SECONDS,
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Send the messages that `export` has written to FILE; nothing is removed."),
    ] = None,
    ledger: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|app",
            help="The file that records what was sent; `app` is that of the app, which the dashboard uses too. "
            "[default: a file per entity in build/resend]",
        ),
    ] = None,
    config: Folder = Path("config"),
) -> None:
    """
    Send messages to the entity that they came from, or to another, and then remove them from here.

    Every property type and section stays as it is; the reason for which the message was given up is removed.
    Messages of one session are sent in order. Each is sent, recorded in the ledger and only then removed, so a run
    that was stopped or killed can be repeated. Ctrl-C ends after the current step and prints a summary.

    Exit code 0: nothing selected is left. 1: some messages were left; the output says which and why. Example:

        busway dead resend west/orders --reason MaxDeliveryCountExceeded --dry-run
    """
    import os
    from datetime import UTC, datetime

    from cli.letters.duplicates import window_by_administration
    from cli.letters.edits import edits_of
    from cli.letters.resend import resend as resend_letters
    from cli.topology.sites import Access
    from shared.resend.options import Options
    from shared.resend.places import Scene
    from shared.resend.routing import guarded, routing_of
    from shared.tasks.files import load

    chosen, configuration = _selection(where, reason, older_than, number, limit), load(config)
    _check_chosen(chosen, everything=everything)
    place = _place(context, entity, configuration)
    routing = routing_of(place, configuration, to, "use --to")
    if new_ids is None:
        access = Access.of(admin or [], None, configuration.connections)
        routing = guarded(routing, window_by_administration(configuration, access), datetime.now(UTC))
    edits = edits_of(set_ or [], remove or [], editors, configuration, os.environ, new_ids=bool(new_ids))
    resending = resend_letters(
        Scene(place, configuration, os.environ),
        chosen,
        edits,
        routing,
        Options(rate, unclear, wait),
        file=file,
        ledger=ledger,
        dry_run=dry_run,
    )
    if not asyncio.run(resending):
        raise typer.Exit(1)


def export(
    context: typer.Context,
    entity: Entity,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write, one JSON object per line.")],
    *,
    where: Where = None,
    reason: Reason = None,
    older_than: OlderThan = None,
    number: Numbers = None,
    limit: Limit = None,
    config: Folder = Path("config"),
) -> None:
    """
    Write messages to a file with their bodies; they stay where they are.

    `busway try TASK --messages FILE` and `busway demo --file FILE` read the file. Only its owner may read it.
    """
    from cli.letters.export_file import export as export_letters
    from shared.tasks.files import load

    chosen = _selection(where, reason, older_than, number, limit)
    asyncio.run(export_letters(_place(context, entity, load(config)), chosen, file))


def drop(
    context: typer.Context,
    entity: Entity,
    *,
    where: Where = None,
    reason: Reason = None,
    older_than: OlderThan = None,
    number: Numbers = None,
    limit: Limit = None,
    everything: All = False,
    exported: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Drop only the messages that an export has written to FILE.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Drop messages that were not exported.")] = False,
    dry_run: DryRun = False,
    wait: Wait = PATIENCE_SECONDS,
    config: Folder = Path("config"),
) -> None:
    """
    Remove messages for good: those of an export, or with --yes any.

    Exit code 0: nothing selected is left. 1: some messages were left; the output says which and why.
    """
    from cli.letters.export_file import exported_keys
    from cli.letters.removal import remove
    from shared.tasks.files import load

    chosen = _selection(where, reason, older_than, number, limit)
    _check_chosen(chosen, everything=everything or exported is not None)
    if exported is None and not yes and not dry_run:
        hint = f"busway {_command(context)} export {entity} FILE, then --exported FILE; or --yes"
        text = "removes messages for good: export them first"
        raise ConfigError([Problem(f"busway {_command(context)} drop", text, hint)])
    configuration = load(config)
    place = _place(context, entity, configuration)
    keys = None if exported is None else exported_keys(exported, place)
    if not asyncio.run(remove(place, configuration, chosen, keys=keys, wait=wait, dry_run=dry_run)):
        raise typer.Exit(1)


def _command(context: typer.Context) -> str | None:
    """Return the command that a subcommand was called of: `dead` or `rejects`."""
    return None if context.parent is None else context.parent.info_name


def _place(context: typer.Context, text: str, configuration: "Configuration") -> "Place":
    from shared.resend.places import dead_letter_queue, rejects_of

    return (dead_letter_queue if _command(context) == _DEAD else rejects_of)(text, configuration)


def _selection(
    where: str | None, reason: str | None, older_than: str | None, numbers: list[int] | None, limit: int | None
) -> "Selection":
    from cli.letters.selection import selection

    return selection(where, reason, older_than, numbers, limit)


def _check_chosen(chosen: "Selection", *, everything: bool) -> None:
    if chosen.is_everything and not everything:
        hint = "choose --where, --reason, --older-than, --number, --limit or --all"
        raise ConfigError([Problem("messages", "none are selected", hint)])


def _group(about: str) -> typer.Typer:
    group = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown", help=about)
    group.command("list")(list_)
    for function in (show, resend, export, drop):
        group.command()(function)
    return group


dead = _group(
    """
Work on dead letters: list, show, resend, export and drop them.

CONNECTION/ENTITY is a queue or TOPIC/Subscriptions/NAME; `/$DeadLetterQueue` is added. TASK means its source.
"""
)
rejects = _group(
    """
Work on messages that tasks have rejected: list, show, resend, export and drop them.

CONNECTION/ENTITY is the queue or subscription with the messages. TASK means the queue in its `rejects`.
"""
)
