"""The `busway` command: a table of its subcommands, each of which is imported when it runs."""

from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer

# Typer has its own copy of click, and no public name for the types that these overrides take.
from typer._click import Command, Context
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command


class _Entry(NamedTuple):
    """Where a subcommand is implemented, and its line in `busway --help`."""

    module: str
    name: str
    summary: str


# Importing all of them takes seconds, because of the SDKs and the models that they need.
_COMMANDS = {
    "demo": _Entry("cli.demo.command", "demo", "Run two sites, send 2,000 messages to them, and check what arrives."),
    "start": _Entry("cli.start", "start", "Run the function app and two sites on this machine."),
    "new": _Entry("cli.project.new_command", "new", "Write a project that holds only a configuration."),
    "check": _Entry("cli.check", "check", "Report every problem in the configuration."),
    "plan": _Entry("cli.topology.plan_command", "plan", "Compare the entities that tasks need with those that exist."),
    "apply": _Entry("cli.topology.apply_command", "apply", "Create and change entities as the tasks need them."),
    "export": _Entry("cli.topology.export_command", "export", "Print what a namespace has as Config.json."),
    "status": _Entry("cli.status.command", "status", "Show what every task does now, how far behind it is, and why."),
    "pause": _Entry("cli.pause.command", "pause", "Stop tasks; their messages stay at the sources."),
    "drain": _Entry("cli.pause.command", "drain", "Pause tasks, and wait for what they have in hand."),
    "resume": _Entry("cli.pause.command", "resume", "Undo pause and drain."),
    "try": _Entry("cli.dry_run.command", "try_task", "Show what a task would do with messages, without sending any."),
    "package": _Entry("cli.project.package_command", "package", "Write the app with a project's configuration."),
    "smoke": _Entry("cli.smoke.command", "smoke", "Send a marked message through each route, and wait for it."),
    "reconcile": _Entry("cli.reconcile", "reconcile", "Reconcile the journals of one day: one verdict per message."),
    "delete-raw": _Entry("cli.delete_raw", "delete_raw", "Delete raw journal files that are compacted."),
    "repair": _Entry(
        "cli.repair.command", "repair", "Find and send the messages that a reconciliation reports missing."
    ),
    "trace": _Entry("cli.trace.command", "trace", "Show every hop of one message, from the journals."),
    "dead": _Entry("cli.dead.command", "dead", "List, show, resend, export or drop dead letters."),
    "rejects": _Entry("cli.dead.command", "rejects", "The same for messages that tasks have rejected."),
    "replay": _Entry("cli.replay.command", "replay", "Send messages of a task again, by time or position."),
    "checkpoints": _Entry(
        "cli.checkpoints.command",
        "checkpoints",
        "Show how far a hub was read; reset it after the hub was created again.",
    ),
    "evacuate": _Entry(
        "cli.evacuate.command", "evacuate", "Move the messages of an entity or a namespace to another one."
    ),
    "purge": _Entry("cli.purge", "purge", "Delete messages of a queue or subscription, by rule and age."),
    "send": _Entry("cli.send", "send", "Send messages to a queue, topic or event hub."),
    "receive": _Entry(
        "cli.receive", "receive", "Print and complete the messages of a queue, subscription or event hub."
    ),
    "forward": _Entry("cli.forward.command", "forward", "Send the records of a Kafka topic to an event hub."),
    "broker": _Entry("cli.broker", "broker", "Run Service Bus and Event Hubs namespaces on this machine."),
    "host": _Entry("cli.host", "host", "Run the function app in the current folder."),
    "failover": _Entry("cli.failover.command", "app", "Show or change the site that applications use."),
    "schema": _Entry("cli.schema", "schema", "Print the JSON schema of task files."),
}


class _Deferred(TyperCommand):
    """A subcommand whose module is imported when it runs or prints its own help."""

    def __init__(self, name: str, entry: _Entry) -> None:
        super().__init__(name, short_help=entry.summary)
        self._entry = entry

    def make_context(
        self, info_name: str | None, args: list[str], parent: Context | None = None, **extra: object
    ) -> Context:
        return self._load().make_context(info_name, args, parent, **extra)

    def _load(self) -> Command:
        found = getattr(import_module(self._entry.module), self._entry.name)
        if isinstance(found, typer.Typer):
            return get_command(found)
        alone = typer.Typer(add_completion=False, rich_markup_mode="markdown")
        alone.command(self.name)(found)
        return get_command(alone)


class _Commands(TyperGroup):
    """The subcommands, in the order of the table."""

    def __init__(self, **attributes: Any) -> None:  # noqa: ANN401 - what Typer passes on
        super().__init__(**attributes)
        self.commands = {name: _Deferred(name, entry) for name, entry in _COMMANDS.items()}


app = typer.Typer(
    name="busway",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    # Locals can hold connection strings.
    pretty_exceptions_show_locals=False,
    rich_markup_mode="markdown",
    help="""
Replicate messages between Azure Service Bus and Event Hubs namespaces.

Every file in `config/tasks` is a replication task and becomes one Azure Function. To work with tasks on this machine:

- `busway demo` runs two sites, sends 2,000 messages to them, and checks what arrives;
- `busway start` runs two sites and the function app while you write a task;
- `busway check` reports every problem in your tasks before you deploy them;
- `busway plan` and `busway apply` create the entities that your tasks need;
- `busway status` shows what every task does now and how far behind it is;
- `busway pause` and `busway resume` stop tasks and start them again;
- `busway try` shows what a task would do with messages, and sends nothing;
- `busway reconcile` gives one verdict for each message of a day, from the journals.

`busway send` and `busway receive` act as the applications at both ends. `busway start` runs `busway broker` and
`busway host`; you can also run them separately.
""",
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        from importlib.metadata import version

        typer.echo(f"busway {version('busway')}")
        raise typer.Exit


@app.callback()
def _main(
    *,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    pass
