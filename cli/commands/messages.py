"""`busway messages`, `busway dead` and `busway rejects`: what is in an entity, and what to do with it."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import Folder, OlderThan, Rate, UnclearChoice, Wait, Where, Yes
from shared.errors import ConfigError, Problem
from shared.resend.options import PATIENCE_SECONDS, Unclear

if TYPE_CHECKING:
    from shared.resend.places import Place
    from shared.resend.selection import Selection
    from shared.tasks.files import Configuration

_MESSAGES = "messages"

Entity = Annotated[
    str,
    typer.Argument(
        metavar="CONNECTION/ENTITY|TASK",
        help="A queue or TOPIC/Subscriptions/NAME, or a task.",
    ),
]
Reason = Annotated[str | None, typer.Option(help="Only messages that were given up for this reason.")]
Session = Annotated[str | None, typer.Option(metavar="ID", help="Only messages of this session.")]
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
            metavar="CONNECTION/ENTITY|TASK",
            help="A queue or TOPIC/Subscriptions/NAME, or a task; of messages also a hub, a storage queue or a Kafka "
            "topic. [default: those of all tasks]",
        ),
    ] = None,
    *,
    where: Where = None,
    reason: Reason = None,
    older_than: OlderThan = None,
    number: Numbers = None,
    limit: Limit = None,
    session: Session = None,
    each: Annotated[bool, typer.Option("--each", help="One line per message instead of groups.")] = False,
    bodies: Annotated[
        bool, typer.Option("--bodies", help="The body and all properties of each message, as `busway receive` does.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    config: Folder = Path("config"),
) -> None:
    """
    Count messages, those that were given up by reason and source, others by state and session; nothing is received.

    Exit code 0: counted. 1: an entity cannot be read. Example:

        busway messages list west/orders --session customer-17 --each
    """
    from cli.letters.report import Form, print_list
    from cli.letters.selection import selection
    from cli.letters.streams import is_stream, print_stream
    from shared.resend import places
    from shared.tasks.files import load

    chosen = selection(where=where, reason=reason, older_than=older_than, number=number, limit=limit, session=session)
    configuration = load(config)
    if entity is not None and _command(context) == _MESSAGES and is_stream(entity, configuration):
        if not chosen.is_everything or each or as_json:
            raise ConfigError([Problem(entity, "is not a queue or subscription", "the only option is --bodies")])
        print_stream(entity, config, with_bodies=bodies)
        return
    if entity is None:
        of_all = {_MESSAGES: places.queues, "dead": places.dead_letter_queues, "rejects": places.rejects_queues}
        found = of_all[_command(context)](configuration)
        if not found:
            raise ConfigError(
                [Problem(f"busway {_command(context)} list", "no task has one", "name CONNECTION/ENTITY")]
            )
    else:
        found = [_opened(context, entity, config, configuration)[0]]
    form = Form.JSON if as_json else Form.BODIES if bodies else Form.LINES
    asyncio.run(print_list(found, chosen, form, singly=each or bodies))


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
    """Show one message: its state and reason, its properties with their types, its body, its journal records."""
    from cli.letters.detail import print_letter

    place, _ = _opened(context, entity, config)
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
    session: Session = None,
    everything: All = False,
    yes: Yes = False,
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

        busway dead resend west/orders --reason MaxDeliveryCountExceeded --yes
    """
    import os
    from datetime import UTC, datetime

    from cli.letters.resend import resend as resend_letters
    from cli.letters.selection import edits_of, selection
    from shared.resend.options import Options
    from shared.resend.places import Scene
    from shared.resend.routing import duplicate_windows, guarded, routing_of

    chosen = selection(where=where, reason=reason, older_than=older_than, number=number, limit=limit, session=session)
    _check_chosen(chosen, everything=everything)
    place, configuration = _opened(context, entity, config)
    routing = routing_of(place, configuration, to, "use --to")
    if new_ids is None:
        hint = "--new-ids gives the copies other ids; --same-ids sends them as they are"
        routing = guarded(routing, duplicate_windows(configuration, os.environ, hint), datetime.now(UTC))
    edits = edits_of(set_ or [], remove or [], editors, configuration, os.environ, new_ids=bool(new_ids))
    resending = resend_letters(
        Scene(place, configuration, os.environ),
        chosen,
        edits,
        routing,
        Options(rate, unclear, wait),
        file=file,
        ledger=ledger,
        yes=yes,
    )
    _end(is_complete=asyncio.run(resending), yes=yes)


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
    session: Session = None,
    config: Folder = Path("config"),
) -> None:
    """
    Write messages to a file with their bodies; they stay where they are.

    `busway try TASK --messages FILE` and `busway demo --file FILE` read the file. Only its owner may read it.
    """
    from cli.letters.export_file import export as export_letters
    from cli.letters.selection import selection

    chosen = selection(where=where, reason=reason, older_than=older_than, number=number, limit=limit, session=session)
    asyncio.run(export_letters(_opened(context, entity, config)[0], chosen, file))


def drop(
    context: typer.Context,
    entity: Entity,
    *,
    where: Where = None,
    reason: Reason = None,
    older_than: OlderThan = None,
    number: Numbers = None,
    limit: Limit = None,
    session: Session = None,
    everything: All = False,
    exported: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Drop only the messages that an export has written to FILE.")
    ] = None,
    yes: Yes = False,
    wait: Wait = PATIENCE_SECONDS,
    config: Folder = Path("config"),
) -> None:
    """
    Remove messages for good; export them first, to keep a copy.

    If they are selected by nothing but their age, the service deletes them itself, in batches, except messages that
    came after the start; otherwise, and where the service deletes no batches (partitioned entities), they are received
    and completed. Deferred and scheduled messages stay.

    Exit code 0: nothing selected is left. 1: some messages were left; the output says which and why. Example:

        busway messages drop west/orders --older-than 7d --yes
    """
    from cli.letters.export_file import exported_keys
    from cli.letters.removal import drop as drop_letters
    from cli.letters.selection import selection

    chosen = selection(where=where, reason=reason, older_than=older_than, number=number, limit=limit, session=session)
    _check_chosen(chosen, everything=everything or exported is not None)
    place, _ = _opened(context, entity, config)
    keys = None if exported is None else exported_keys(exported, place)
    dropping = drop_letters(place, chosen, keys=keys, wait=wait, yes=yes)
    _end(is_complete=asyncio.run(dropping), yes=yes)


def _end(*, is_complete: bool, yes: bool) -> None:
    from cli.output import print_only_shown

    if not yes:
        print_only_shown()
    if not is_complete:
        raise typer.Exit(1)


def _command(context: typer.Context) -> str:
    """Return the command that a subcommand was called of: `messages`, `dead` or `rejects`."""
    return _MESSAGES if context.parent is None else context.parent.info_name or _MESSAGES


def _opened(
    context: typer.Context, text: str, folder: Path, configuration: "Configuration | None" = None
) -> "tuple[Place, Configuration]":
    """Return what *text* names for the command, and the configuration, which is loaded unless it is given."""
    from shared.resend.places import dead_letter_queue, queue_of, rejects_of
    from shared.tasks.files import load

    configuration = configuration or load(folder)
    named = {_MESSAGES: queue_of, "dead": dead_letter_queue, "rejects": rejects_of}
    return named[_command(context)](text, configuration), configuration


def _check_chosen(chosen: "Selection", *, everything: bool) -> None:
    if chosen.is_everything and not everything:
        hint = "choose --where, --reason, --older-than, --number, --session, --limit or --all"
        raise ConfigError([Problem("messages", "none are selected", hint)])


def _group(about: str) -> typer.Typer:
    group = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown", help=about)
    group.command("list")(list_)
    for function in (show, resend, export, drop):
        group.command()(function)
    return group


messages = _group(
    """
List, show, resend, export and drop the messages of any queue or subscription.

CONNECTION/ENTITY is a queue or TOPIC/Subscriptions/NAME, either with `/$DeadLetterQueue`. TASK means its source.
`busway dead` and `busway rejects` are the same for the messages that were given up.
"""
)
dead = _group(
    """
The same as `busway messages`, for dead letters.

`/$DeadLetterQueue` is added to CONNECTION/ENTITY. TASK means the dead letters of its source.
"""
)
rejects = _group(
    """
The same as `busway messages`, for messages that tasks have rejected.

CONNECTION/ENTITY is the queue or subscription with the messages. TASK means the queue in its `rejects`.
"""
)
