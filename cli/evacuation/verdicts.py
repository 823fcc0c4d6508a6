"""The verdict on each message of an evacuation, in a file."""

import contextlib
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from cli.evacuation.pairs import Pair
from cli.evacuation.receivers import STATE
from cli.evacuation.survey import Share
from cli.letters.ledger_file import ledger_of
from shared.private_file import open_private
from shared.resend.edits import resent_key
from shared.resend.ledger import DONE, OPEN, Entry, Ledger
from shared.resend.peek import peek
from shared.resend.places import Place

MOVED, LEFT, UNCLEAR, TAKEN = "moved", "left", "unclear", "taken at the source"


def verdicts_path(folder: Path, pair: Pair) -> Path:
    """Return the file with the verdicts of the messages of an entity."""
    return ledger_of(pair.source, folder).with_suffix(".verdicts.jsonl")


async def write_verdicts(
    path: Path,
    pair: Pair,
    ledgers: Mapping[Place, Ledger],
    left: Mapping[tuple[Share, str], str],
    settings: Mapping[str, str],
) -> Counter[str]:
    """
    Write a line for each message that this round has moved or left, and return the number of each verdict.

    A round are the runs until nothing is left. One without any message leaves the file of the round before.
    """
    counts: Counter[str] = Counter()
    lines: list[str] = []
    there = await _copies(pair, ledgers, settings)
    for place, ledger in ledgers.items():
        of_place = {
            key: (share, text)
            for (share, key), text in left.items()
            if (share is Share.DEAD) == place.is_dead_letter_queue
        }
        entries = {
            key: entry
            for key, entry in ledger.entries.items()
            if not key.startswith(STATE) and (entry.run > ledger.finished or key in of_place)
        }
        for key in [*entries, *(each for each in of_place if each not in entries)]:
            line = _line(key, entries.get(key), of_place.get(key))
            if line["verdict"] == MOVED:
                line["is_there"] = (place, key) in there
                counts["there"] += (place, key) in there
            counts[str(line["verdict"])] += 1
            lines.append(json.dumps({"entity": str(place), **line}) + "\n")
    if lines:
        with open_private(path, "w") as file:
            file.writelines(lines)
    return counts


def _line(key: str, entry: Entry | None, left: tuple[Share, str] | None) -> dict[str, object]:
    number, _, enqueued = key.partition("/")
    share = left[0].value if entry is None and left is not None else "" if entry is None else entry.share
    line: dict[str, object] = {"sequence_number": number, "enqueued_time": enqueued, "was": share}
    if entry is not None and entry.state in DONE:
        line |= {"verdict": MOVED, "to": entry.to, "new_number": entry.number}
    elif entry is not None and entry.state in OPEN:
        line |= {"verdict": UNCLEAR, "to": entry.to}
    else:
        line["verdict"] = TAKEN if left is None else LEFT
    return line if left is None else line | {"reason": left[1]}


async def _copies(pair: Pair, ledgers: Mapping[Place, Ledger], settings: Mapping[str, str]) -> set[tuple[Place, str]]:
    """Return the places and keys of the messages whose copies are at the target now."""
    found: set[tuple[Place, str]] = set()
    if pair.target_forwards:
        return found  # nothing was moved there
    for target in (pair.target,) if pair.is_topic else (pair.target, pair.target.dead_letters()):
        async with contextlib.aclosing(peek(target, settings)) as letters:
            async for letter, _ in letters:
                for place, ledger in ledgers.items():
                    key = resent_key(letter, place, ledger)
                    if key is not None:
                        found.add((place, key))
    return found
