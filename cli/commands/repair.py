"""`busway repair`: find and send the messages that a reconciliation reports missing."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import ConsumerGroup, Folder, Yes


def repair(
    manifest: Annotated[Path, typer.Argument(help="The repair.jsonl of a run of `busway reconcile`.")],
    *,
    yes: Yes = False,
    copies: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONNECTION/ENTITY",
            help="Another queue or subscription that may have copies. Can be repeated.",
        ),
    ] = None,
    consumer_group: ConsumerGroup = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            help="The file that records what was sent. [default: repaired.jsonl in the folder of the results]"
        ),
    ] = None,
    expired: Annotated[
        bool,
        typer.Option(
            "--expired", help="Send messages too that their source expired before their task could send them."
        ),
    ] = False,
    folder: Folder = Path("config"),
) -> None:
    """
    Find a copy of each missing message, and send it as its task would have sent it.

    The command looks for copies in the dead-letter queue of the task's source, in the source's event hub, in the
    entities of the taps that saw the message, and in the entities of `--copies`, such as
    `west/orders/Subscriptions/journal`. A copy must have the id of the message and the digests of its body and
    properties, as the journal has them. It goes through the task's own pipeline and gets the same stamps, id and
    journal records as the original. The command only reads the entities: the copies stay where they are.

    A ledger, `repaired.jsonl` beside the folder `runs`, records what was sent, so that no manifest of another night
    sends it again. Only one repair at a time can use a ledger: a second one ends with the process that has it. If you
    copy a manifest to another folder, its ledger is there too, unless you use `--ledger`. If a repair is interrupted,
    or gets no answer from the target, the next repair sends that one message again: it may arrive twice, unless the
    target detects duplicates. A message that is still in a queue of its target is not sent. The command cannot look
    into topics and hubs, or see what was already consumed: the next reconciliation shows that.

    Messages that their source expired before their task could send them are only listed, unless you use `--expired`:
    the receivers may not want them any longer. They get their whole time to live again.

    The command waits a few seconds for an unavailable target, whatever the task's `limits.hold` is.

    Exit code 0: nothing is left to do. 1: some messages were not found or not sent.
    """
    import asyncio
    import os
    from collections import Counter

    from cli.letters.ledger_file import LedgerFile
    from cli.letters.report import print_end
    from cli.output import print_only_shown
    from cli.repair.manifest import ledger_of, read
    from cli.repair.repair import Repair, ledger_in
    from cli.repair.search import GOOD, Report, State
    from shared.printable import printable
    from shared.resend.places import entity_named
    from shared.tasks.files import load

    messages, more = read(manifest)
    configuration = load(folder)
    places = [entity_named(text, configuration, "--copies") for text in copies or []]
    file = LedgerFile(ledger or ledger_of(manifest))
    counts: Counter[State] = Counter()

    def report(each: Report) -> None:
        counts[each.state] += 1
        typer.echo(printable(f"{each.state:12} {each.message.name}: {each.text}"))

    records = ledger_in(file, is_sending=yes)
    repairing = Repair(
        configuration, os.environ, places, records, report, sends_expired=expired, consumer_group=consumer_group
    )
    error = asyncio.run(repairing.run(messages, is_sending=yes))
    for state, count in sorted(counts.items()):
        typer.echo(f"{count:6} {state}")
    if yes:
        typer.echo(f"the ledger of sent messages is {file.path}")
    else:
        print_only_shown()
    if more:
        typer.echo(f"{more} more messages are missing than the manifest has: reconcile again after this repair")
    print_end(error, is_stopped=False)
    if more or error is not None or not all(state in GOOD for state in counts):
        raise typer.Exit(1)
