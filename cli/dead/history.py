"""What the journals have about a message, as `busway trace` shows it."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cli.reconcile import journal_at
from cli.trace.run import on_this_machine
from cli.trace.show import as_text
from shared.journal.hops import hops
from shared.journal.search import files_in, search
from shared.printable import printable
from shared.resend.letters import Letter

_HOURS = 4
_BEFORE = timedelta(hours=1)


def history(letter: Letter, folder: Path) -> list[str]:
    """
    Return the lines about *letter* from the journals, from the hour before it was enqueued to two hours after.

    Raises ConfigError, TargetUnavailable and TargetRefused if there is no journal in blobs, or it cannot be read.
    """
    if letter.message_id is None or letter.enqueued_time is None:
        return ["the journals are searched by message id, and it has none"]
    first = datetime.fromtimestamp(letter.enqueued_time / 1000, UTC) - _BEFORE
    hours = [f"{first + timedelta(hours=number):%Y-%m-%dT%H}" for number in range(_HOURS)]
    source, storage = journal_at(None, folder)
    found = search(files_in(on_this_machine(source, storage, hours), hours), letter.message_id)
    text = as_text(letter.message_id, hops(found.records), f"the journals of {hours[0]} to {hours[-1]}")
    return [*text.split("\n"), *map(printable, found.problems)]
