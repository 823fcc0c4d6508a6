"""The text and the JSON that `busway trace` prints."""

import json
import shutil
import textwrap
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime

from busway_reconcile.report.trace import moment, trace
from shared.journal.hops import Hop
from shared.journal.record import Record
from shared.printable import printable

_COLUMNS = 80
_MOST_ENDS = 10
_TEXT_AT = 28
_SECONDS_FROM = 10_000_000


def as_text(message_id: str, way: Sequence[Hop], read: str) -> str:
    """Return the verdict on the last hop, and a paragraph for each hop."""
    name = printable(message_id)
    if not way:
        return f"{name}: no record in {read}"
    last = way[-1]
    count = "1 hop" if len(way) == 1 else f"{len(way)} hops"
    lines = [*_wrapped(f"{name}: {count}. {_end_of(last)}"), f"({read})"]
    for number, hop in enumerate(way, 1):
        lines += ["", *_paragraph(number, hop)]
    return "\n".join(lines)


def as_document(message_id: str, way: Sequence[Hop], read: str) -> str:
    """Return the hops with their records, as the journal has them, as JSON."""
    found = [
        {**hop.place._asdict(), "began": hop.began, "changes": hop.changes(), "records": hop.records} for hop in way
    ]
    return json.dumps({"message_id": message_id, "read": read, "hops": found}, indent=2)


def _end_of(hop: Hop) -> str:
    outcome = hop.outcome
    if outcome is None:
        seen = [record for record in hop.records if record["observer"] == "tap" and record["role"] == "target"]
        if seen:
            return (
                f"A tap saw it in {printable(seen[-1].get('target', 'the target'))}; {hop.place.task} has no outcome."
            )
        return f"{hop.place.task} has no outcome on record: it still holds the message, or its instance ended."
    counts = Counter(trace([_complete(record)])[0].text for record in hop.outcomes)
    texts = [text if count == 1 else f"{text} ({count} times)" for text, count in counts.items()]
    if hop.unrecorded:
        texts.append(f"has no outcome for {hop.unrecorded} more")
    if len(texts) > _MOST_ENDS:
        texts[_MOST_ENDS:] = [f"{len(texts) - _MOST_ENDS} others"]
    return f"At {moment(outcome['journal_time'])} UTC {hop.place.task} {printable('; '.join(texts))}."


def _paragraph(number: int, hop: Hop) -> list[str]:
    place = hop.place
    position = "" if place.sequence_number is None else f", sequence number {place.sequence_number}"
    partition = f", partition {place.partition}" if place.partition else ""
    lines = _wrapped(f"{number}. {place.task}: {place.site}/{place.entity}{partition}{position}")
    lines.append(f"   {moment(hop.began)}  enqueued at the source")
    for record, step in zip(hop.records, trace(map(_complete, hop.records)), strict=True):
        micros = record["journal_time"] - hop.began
        passed = f"{micros / 1000:+,.0f} ms" if abs(micros) < _SECONDS_FROM else f"{micros / 1_000_000:+,.1f} s"
        time = datetime.fromtimestamp(record["journal_time"] // 1000 / 1000, UTC)
        lines += _step(f"{time:%H:%M:%S.%f}"[:-3], passed, f"{step.observer} {step.text}")
    lines += [line for text in hop.changes() for line in _step("", "", text)]
    return lines


def _step(time: str, passed: str, text: str) -> list[str]:
    return _wrapped(text, f"   {time:12} {passed:>10}  ", " " * _TEXT_AT)


def _wrapped(text: str, first: str = "", others: str = "   ") -> list[str]:
    width = max(min(shutil.get_terminal_size((_COLUMNS, 24)).columns, 120), _COLUMNS)
    lines = textwrap.TextWrapper(width, first, others, break_on_hyphens=False, break_long_words=False)
    return lines.wrap(printable(text))


def _complete(record: Record) -> Record:
    """Return *record* with None for the fields that the journal left out, as the nightly job has it."""
    return defaultdict(lambda: None, record)
