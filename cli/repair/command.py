"""`busway repair`."""

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Folder
from cli.output import fail
from shared.errors import Problem


def repair(
    manifest: Annotated[Path, typer.Argument(help="The repair.jsonl of a run of `busway reconcile`.")],
    apply: Annotated[
        bool | None, typer.Option("--apply/--dry-run", help="Send, or only say what would be sent; one of them.")
    ] = None,
    copies: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONNECTION/ENTITY",
            help="Where copies lie besides: a subscription that keeps what its topic gets, say; repeatedly.",
        ),
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="Where it is noted what has been sent, of a manifest that was copied.")
    ] = None,
    folder: Folder = Path("config"),
) -> None:
    """
    Look for a copy of each missing message, and send it as its task would have.

    Looked through are the dead letters of the task's source, what its hub still keeps, what the taps look at that saw
    the message, and what `--copies` names, such as `west/orders/Subscriptions/journal`. A copy is the message if its id
    and the digests of its body and properties are those of the journal. It goes through the task's own pipeline, with
    the stamps, the id and the journal's records that it would have got; the copy stays where it is. No other message is
    touched.

    What has been sent is noted in one ledger for the manifests of all nights, repaired.jsonl beside the folder `runs`:
    none of them sends it again. A manifest that was copied elsewhere has its ledger beside it, unless `--ledger` names
    another. A repair that was cut off or had no answer may have sent the message that it was at; that one is sent
    again, and arrives twice where the target does not detect duplicates. A message that lies in a queue that the task
    sends to is not sent; of topics and hubs, and of what was consumed meanwhile, only the next reconciliation can tell.
    A target that is away is waited for by the second, not by the `limits.hold` of the task.

    Exit code 0 if nothing is left to do, 1 if messages are left that could not be found or sent.
    """
    if apply is None:
        fail([Problem("busway repair", "choose --dry-run or --apply")])

    from cli.repair.run import repair_and_print

    if not repair_and_print(manifest, copies or [], ledger, folder, apply=apply):
        raise typer.Exit(1)
