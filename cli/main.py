"""The `busway` command: a table of its subcommands, each of which is imported when it runs, and the end of errors."""

import logging
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer

# Typer has its own copy of click, and no public name for the types that these overrides take.
from typer._click import Command, Context
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command


class _Entry(NamedTuple):
    """A subcommand: its line in `busway --help`, and where it is implemented."""

    summary: str
    module: str
    function: str
    error_code: int = 1
    """The exit code of an error, which some commands distinguish from a finding."""


# A module is imported when its command runs or prints its own help: all of them take seconds, because of the SDKs and
# the models that they need.
_PARTS = "Parts"
"""Commands that others run, or that few need: `busway --help` only names them."""
GROUPS: dict[str, dict[str, _Entry]] = {
    "Start on this machine": {
        "demo": _Entry("Run two sites, send 2,000 messages to them, and check what arrives.", "demo", "demo"),
        "new": _Entry("Write a project that holds only a configuration.", "new", "new"),
        "start": _Entry("Run the function app and two sites on this machine.", "start", "start"),
        "fault": _Entry("Let something fail in the running stack.", "fault", "fault"),
        "send": _Entry("Send messages to a queue, topic or event hub.", "send", "send"),
        "receive": _Entry(
            "Print and complete the messages of a queue, subscription or event hub.", "receive", "receive"
        ),
    },
    "Configure": {
        "check": _Entry("Report every problem in the configuration.", "check", "check"),
        "try": _Entry("Show what a task would do with messages, without sending any.", "dry_run", "try_task", 2),
    },
    "Deploy": {
        "plan": _Entry("Compare the entities that tasks need with those that exist.", "plan", "plan"),
        "apply": _Entry("Create and change entities as the tasks need them.", "apply", "apply"),
        "export": _Entry("Print what a namespace has as Config.json.", "export", "export"),
        "package": _Entry("Write the app with a project's configuration.", "package", "package"),
        "smoke": _Entry("Send a marked message through each route, and wait for it.", "smoke", "smoke", 2),
    },
    "Watch": {
        "status": _Entry("Show what every task does now, how far behind it is, and why.", "status", "status", 2),
        "trace": _Entry("Show every hop of one message, from the journals.", "trace", "trace", 2),
        "reconcile": _Entry("Reconcile the journals of one day: one verdict per message.", "reconcile", "reconcile", 2),
        "docs": _Entry("Print a page, or what the pages say about an error.", "docs", "docs"),
    },
    "Operate": {
        "pause": _Entry("Stop tasks; their messages stay at the sources.", "pause", "pause", 2),
        "resume": _Entry("Start paused tasks again.", "pause", "resume", 2),
        "failover": _Entry("Show or change the site that applications use.", "failover", "app"),
        "forward": _Entry("Send the records of a Kafka topic to an event hub.", "forward", "forward"),
    },
    "Repair": {
        "messages": _Entry("List, show, resend, export or drop messages of any entity.", "messages", "messages"),
        "dead": _Entry("The same for dead letters.", "messages", "dead"),
        "rejects": _Entry("The same for messages that tasks have rejected.", "messages", "rejects"),
        "repair": _Entry("Find and send the messages that a reconciliation reports missing.", "repair", "repair"),
        "replay": _Entry("Send messages of a task again, by time or position.", "replay", "replay"),
        "evacuate": _Entry("Move the messages of an entity or a namespace to another one.", "evacuate", "evacuate"),
    },
    _PARTS: {
        "broker": _Entry("Run Service Bus and Event Hubs namespaces on this machine.", "broker", "broker"),
        "host": _Entry("Run the function app in the current folder.", "host", "host"),
        "schema": _Entry("Print the JSON schema of task files.", "schema", "schema"),
        "functions": _Entry("Wait until Azure knows the functions of a published app.", "functions", "functions"),
        "checkpoints": _Entry(
            "Show how far a hub was read; reset it after the hub was created again.", "checkpoints", "checkpoints"
        ),
        "delete-raw": _Entry("Delete raw journal files that are compacted.", "delete_raw", "delete_raw", 2),
    },
}


HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}


class _Deferred(TyperCommand):
    """A subcommand whose module is imported when it runs or prints its own help."""

    def __init__(self, name: str, entry: _Entry, group: str) -> None:
        super().__init__(name, short_help=entry.summary, rich_help_panel=group, hidden=group == _PARTS)
        self.entry = entry

    def make_context(
        self, info_name: str | None, args: list[str], parent: Context | None = None, **extra: object
    ) -> Context:
        return self._load().make_context(info_name, args, parent, **extra)

    def _load(self) -> Command:
        found = getattr(import_module(f"cli.commands.{self.entry.module}"), self.entry.function)
        if isinstance(found, typer.Typer):
            found.info.context_settings = HELP_OPTIONS
            return get_command(found)
        alone = typer.Typer(add_completion=False, rich_markup_mode="markdown", context_settings=HELP_OPTIONS)
        alone.command(self.name)(found)
        return get_command(alone)


class _Commands(TyperGroup):
    """The subcommands, in the order of the table; each error that one raises is printed here, and ends the command."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - what Typer passes on
        super().__init__(**attributes)
        self._deferred = {
            name: _Deferred(name, entry, group) for group, entries in GROUPS.items() for name, entry in entries.items()
        }
        self.commands = {**self._deferred}

    def invoke(self, ctx: Context) -> Any:  # noqa: ANN401 - whatever a subcommand returns
        from cli.output import broken_silence, print_problems, problems_of
        from shared.errors import BuswayError

        # The SDKs log the errors that they also raise; the command prints them once.
        logging.getLogger("azure").addHandler(logging.NullHandler())
        try:
            with broken_silence(lambda: ctx.invoked_subcommand):
                return super().invoke(ctx)
        except BuswayError as error:
            print_problems(problems_of(error))
            code = 1 if ctx.invoked_subcommand is None else self._deferred[ctx.invoked_subcommand].entry.error_code
            raise typer.Exit(code) from error


app = typer.Typer(
    name="busway",
    cls=_Commands,
    no_args_is_help=True,
    context_settings=HELP_OPTIONS,
    # Locals can hold connection strings.
    pretty_exceptions_show_locals=False,
    rich_markup_mode="markdown",
    epilog=f"Parts: {', '.join(f'`{name}`' for name in GROUPS[_PARTS])}; `busway COMMAND --help`.",
    help="""
Replicate messages between Azure Service Bus and Event Hubs namespaces.

Every file in `config/tasks` is a replication task and becomes one Azure Function. Begin with `busway demo`, then
`busway new` and `busway start`. Commands that act show what they would do; `--yes` does it.
""",
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        from cli.version import build

        typer.echo(f"busway {build()}")
        raise typer.Exit


@app.callback()
def _main(
    *,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    pass
