"""`busway demo`."""

from pathlib import Path
from typing import Annotated

import typer

from cli.children import ChildFailed
from cli.demo import message_file
from cli.demo.messages import samples, webhook_templates
from cli.demo.run import run
from cli.output import console, fail
from cli.stack import ROOT, run_until_signalled
from shared.errors import ConfigError, TargetUnavailable

WEBHOOKS = ROOT / "node_modules/@octokit/webhooks-examples/api.github.com/index.json"

_WEBHOOKS = 2000
# With fewer some pattern would have no message.
_FEWEST = 20

HELP = f"""
Run two sites, west and east, on this machine, send messages to both at once, and prove what arrived.

The messages are recorded GitHub webhooks, in one session for each repository, sent again and again under new ids and
each with application properties of every type that Service Bus allows. The tasks are those of config/tasks:

- all-active: topic `events` on both sites, in order for each session;
- active-passive: topic `payments` from west to east, where copies live for two minutes;
- spillover: queue `jobs`, whose consumers fail; what one site gives up on the other tries, and what both give up on
  goes to `jobs-auxiliary`.

In the end the nightly job reconciles the journals that the tasks have kept meanwhile, and tells where its page is.

Exit code 0 means: nothing lost, doubled, bounced or out of order, every body and property as it was sent, and the job
found the same. The logs of the processes are in build/demo.

{message_file.FORMAT}
"""


def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave everything running afterwards, and tell how to look around.")
    ] = False,
    file: Annotated[
        Path | None, typer.Option(metavar="MESSAGES.jsonl", help="Send these messages instead of recorded webhooks.")
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            min=_FEWEST,
            max=100_000,
            help="How many to send, the messages in turn. [default: 2000; of a file, each once, but 20 at least]",
        ),
    ] = None,
) -> None:
    """Run the demo; the help text is HELP, which names the format of the file too."""
    demonstrated = run_until_signalled(_demo(keep=keep, file=file, count=count))
    raise typer.Exit(0 if demonstrated else 1)


async def _demo(*, keep: bool, file: Path | None, count: int | None) -> bool:
    try:
        if file is None:
            templates, usual = webhook_templates(WEBHOOKS), _WEBHOOKS
        else:
            templates = message_file.read_templates(file)
            usual = max(len(templates), _FEWEST)
        return await run(samples(templates, usual if count is None else count), console(), keep=keep)
    except ConfigError as error:
        fail(error.problems)
    except (ChildFailed, TargetUnavailable) as error:
        fail([error])
