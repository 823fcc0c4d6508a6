"""The `busway` command."""

import typer

from cli.broker import broker
from cli.check import check
from cli.demo.command import HELP, demo
from cli.failover.command import app as failover
from cli.host import host
from cli.receive import receive
from cli.reconcile import reconcile
from cli.repair.command import repair
from cli.schema import schema
from cli.send import send
from cli.start import start

app = typer.Typer(
    name="busway",
    no_args_is_help=True,
    add_completion=False,
    # Locals can hold connection strings.
    pretty_exceptions_show_locals=False,
    rich_markup_mode="markdown",
    help="""
Busway carries messages between Azure Service Bus and Event Hubs namespaces without changing what it does not touch.

Every file in `config/tasks` is a replication task and becomes one Azure Function. To try it out on this machine:

- `busway demo` runs two sites, sends 2,000 messages to them and proves what arrived;
- `busway start` keeps two sites and the function app running while you write a task;
- `busway check` tells what is wrong with your tasks before Azure does.
- `busway reconcile` says of every message of a day what became of it, from the journals.

`busway send` and `busway receive` play the applications at both ends. `busway broker` and `busway host` are the two
halves of `start`, for use one by one.
""",
)

app.command(help=HELP, short_help="Run two sites, send 2,000 messages to them, and prove what arrived.")(demo)
app.command()(start)
app.command()(check)
app.command()(reconcile)
app.command()(repair)
app.command()(send)
app.command()(receive)
app.command()(broker)
app.command()(host)
app.add_typer(failover, name="failover")
app.command()(schema)
