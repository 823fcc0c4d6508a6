"""`busway dead` and `busway rejects`: messages that were given up."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import DryRun, Folder, OlderThan, Rate, UnclearChoice, Wait, Where
from cli.topology.options import AdminAddresses
from shared.resend.options import PATIENCE_SECONDS, Unclear

if TYPE_CHECKING:
    from cli.dead.kinds import Kind
    from shared.resend.selection import Selection

_DEAD = "dead"
_OPTIONS = typer.Option

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


def _make(command: str, about: str) -> typer.Typer:
    app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode="markdown", help=about)

    @app.command("list")
    def list_(
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
        each: Annotated[bool, _OPTIONS("--each", help="One line per message instead of groups.")] = False,
        as_json: Annotated[bool, _OPTIONS("--json", help="One JSON object per line.")] = False,
        config: Folder = Path("config"),
    ) -> None:
        """Count the messages by reason, source and age; nothing is received. No body is shown."""
        from cli.dead.run import list_and_print

        chosen = _selection(where, reason, older_than, number, limit)
        list_and_print(_kind(command), entity, chosen, config, each=each, as_json=as_json)

    @app.command()
    def show(
        entity: Entity,
        number: Annotated[int, typer.Argument(help="Its sequence number, the first column of `list --each`.")],
        *,
        body: Annotated[bool, _OPTIONS("--body/--no-body", help="Show the body on this terminal.")] = True,
        journal: Annotated[
            bool,
            _OPTIONS(
                "--journal/--no-journal", help="Show what the journals have of it; their files of four hours are read."
            ),
        ] = True,
        config: Folder = Path("config"),
    ) -> None:
        """Show one message: why it was given up, its properties with their types, its body, its journal records."""
        from cli.dead.run import show_and_print

        show_and_print(_kind(command), entity, number, config, with_body=body, with_journal=journal)

    @app.command()
    def resend(
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
            _OPTIONS(
                metavar="CONNECTION/ENTITY",
                help="Send to this queue, topic or event hub instead of the entity that they came from.",
            ),
        ] = None,
        set_: Annotated[
            list[str] | None,
            _OPTIONS("--set", metavar="NAME=VALUE", help="Set a property, as SET in a rule's action. Can be repeated."),
        ] = None,
        remove: Annotated[
            list[str] | None, _OPTIONS(metavar="NAME", help="Remove a property. Can be repeated.")
        ] = None,
        editors: Annotated[
            str | None, _OPTIONS(metavar="TASK", help="First apply the editors of a task to each message.")
        ] = None,
        new_ids: Annotated[
            bool | None,
            _OPTIONS(
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
            _OPTIONS(metavar="FILE", help="Send the messages that `export` has written to FILE; nothing is removed."),
        ] = None,
        ledger: Annotated[
            str | None,
            _OPTIONS(
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
        from cli.dead.resend_run import ResendRequest, resend_and_print
        from shared.resend.options import Options

        chosen = _selection(where, reason, older_than, number, limit, everything=everything)
        options = Options(rate, unclear, wait)
        request = ResendRequest(to, set_ or [], remove or [], editors, new_ids, admin or [], ledger, file, options)
        if not resend_and_print(_kind(command), entity, chosen, config, request, dry_run=dry_run):
            raise typer.Exit(1)

    @app.command()
    def export(
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
        from cli.dead.run import export_and_print

        export_and_print(_kind(command), entity, _selection(where, reason, older_than, number, limit), config, file)

    @app.command()
    def drop(
        entity: Entity,
        *,
        where: Where = None,
        reason: Reason = None,
        older_than: OlderThan = None,
        number: Numbers = None,
        limit: Limit = None,
        everything: All = False,
        exported: Annotated[
            Path | None, _OPTIONS(metavar="FILE", help="Drop only the messages that an export has written to FILE.")
        ] = None,
        yes: Annotated[bool, _OPTIONS("--yes", help="Drop messages that were not exported.")] = False,
        dry_run: DryRun = False,
        wait: Wait = PATIENCE_SECONDS,
        config: Folder = Path("config"),
    ) -> None:
        """
        Remove messages for good: those of an export, or with --yes any.

        Exit code 0: nothing selected is left. 1: some messages were left; the output says which and why.
        """
        from cli.dead.drop_run import drop_and_print
        from cli.output import fail
        from shared.errors import Problem

        chosen = _selection(where, reason, older_than, number, limit, everything=everything or exported is not None)
        if exported is None and not yes and not dry_run:
            hint = f"busway {command} export {entity} FILE, then --exported FILE; or --yes"
            fail([Problem(f"busway {command} drop", "removes messages for good: export them first", hint)])
        if not drop_and_print(_kind(command), entity, chosen, config, exported=exported, wait=wait, dry_run=dry_run):
            raise typer.Exit(1)

    return app


def _kind(command: str) -> "Kind":
    from cli.dead.kinds import DEAD, REJECTS

    return DEAD if command == _DEAD else REJECTS


def _selection(
    where: str | None,
    reason: str | None,
    older_than: str | None,
    numbers: list[int] | None,
    limit: int | None,
    *,
    everything: bool | None = None,
) -> "Selection":
    from cli.dead.selection import selection
    from cli.output import fail
    from shared.errors import ConfigError, Problem

    try:
        chosen = selection(where, reason, older_than, numbers, limit)
    except ConfigError as error:
        fail(error.problems)
    if everything is False and chosen.is_everything:
        fail(
            [
                Problem(
                    "messages",
                    "none are selected",
                    "choose --where, --reason, --older-than, --number, --limit or --all",
                )
            ]
        )
    return chosen


dead = _make(
    _DEAD,
    """
Work on dead letters: list, show, resend, export and drop them.

CONNECTION/ENTITY is a queue or TOPIC/Subscriptions/NAME; `/$DeadLetterQueue` is added. TASK means its source.
""",
)
rejects = _make(
    "rejects",
    """
Work on messages that tasks have rejected: list, show, resend, export and drop them.

CONNECTION/ENTITY is the queue or subscription with the messages. TASK means the queue in its `rejects`.
""",
)
