"""
A journal kept in an event hub: the Avro files of Capture as journal files, and the events that it has not written.

Source: Event Hubs documentation, "Capture events through Azure Event Hubs": one record for each event, its bytes in
`Body`. The content of a body: shared/journal/event_hub.py.
"""

import base64
import binascii
import gzip
import io
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any, NamedTuple

from busway_reconcile.journal.hours import hour_of, hours_between, start_of
from busway_reconcile.journal.problems import Problem
from busway_reconcile.read.gzip_members import Torn, texts_of

SUFFIX = ".avro"
CAPTURED = "captured"
"""The folder, beside the journal's files, with the numbers and the problems of each Capture file."""

_GZIP = b"\x1f\x8b"
_MICROS = 1_000_000
# It becomes the name of a folder; shared/tasks allows no other task names.
_TASK = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,126}")

# .../PARTITION/YEAR/MONTH/DAY/HOUR/MINUTE/SECOND.avro, the time in which the window of the file ended.
_PATH = re.compile(r"(.*?)([^/]+)/(\d{4})/(\d\d)/(\d\d)/(\d\d)/(\d\d)/(\d\d)\.avro")

_Side = tuple[str, str, str]
"""Task, role and hour."""


class Captured(NamedTuple):
    """A file of Capture: its name, and the numbers of its first and last event; None without events."""

    where: str
    first: int | None
    last: int | None


class Kept(NamedTuple):
    """What a file of the folder CAPTURED keeps of a Capture file."""

    captured: Captured
    problems: list[Problem]

    def to_json(self) -> str:
        """Return the content of the file."""
        return json.dumps(self)

    @classmethod
    def from_json(cls, content: str) -> "Kept":
        """Return what a file holds."""
        captured, problems = json.loads(content)
        return cls(Captured(*captured), [Problem.from_list(problem) for problem in problems])


def convert(content: bytes, where: str) -> tuple[dict[str, bytes], Kept]:
    """
    Return the journal files in the Capture file *where*, by their paths below the journal, and what is kept of it.

    The same content always gives the same files.

    A record goes into the hour in which it was made, so both copies of an event sent twice are in the same hour.
    """
    sides: dict[_Side, list[bytes]] = defaultdict(list)
    troubles: dict[str, int] = defaultdict(int)
    numbers: list[int] = []
    for body in _bodies(content, troubles, numbers):
        for line in _lines(body, troubles):
            side = _side(line)
            if side is None:
                troubles["lines that are not journal records"] += 1
            else:
                sides[side].append(line)
    name = blake2b(where.encode(), digest_size=8).hexdigest()
    files = {
        f"task={task}/date={hour[:10]}/hour={hour[11:]}/role={role}"
        f"/capture_{name}-{round(start_of(hour).timestamp() * 1000)}.jsonl.gz": _member(lines)
        for (task, role, hour), lines in sides.items()
    }
    captured = Captured(where, min(numbers), max(numbers)) if numbers else Captured(where, None, None)
    return files, Kept(captured, _problems(where, troubles, sides))


def _member(lines: list[bytes]) -> bytes:
    return gzip.compress(b"".join(line + b"\n" for line in lines), mtime=0)


def _bodies(content: bytes, troubles: dict[str, int], numbers: list[int]) -> Iterator[bytes]:
    import fastavro  # noqa: PLC0415 - a cluster that reads a journal in blobs need not have it

    try:
        for record in fastavro.reader(io.BytesIO(content)):
            number = record.get("SequenceNumber") if isinstance(record, dict) else None
            if isinstance(number, int):
                numbers.append(number)
            body = record.get("Body") if isinstance(record, dict) else None
            if isinstance(body, bytes):
                yield body
            else:
                troubles["events without a body"] += 1
    except Exception as error:  # noqa: BLE001 - fastavro raises many types for a torn file
        troubles[f"torn: {type(error).__name__}; the events before it were read"] += 1


def _lines(body: bytes, troubles: dict[str, int]) -> Iterator[bytes]:
    try:
        members = body if body.startswith(_GZIP) else base64.b64decode(body, validate=True)
        for text in texts_of(members):
            yield from filter(None, text.split(b"\n"))
    except (binascii.Error, Torn):
        troubles["events that are not from a journal"] += 1


def _side(line: bytes) -> _Side | None:
    try:
        record: Any = json.loads(line)
        task, role, made = record["task"], record["role"], record["journal_time"]
        hour = hour_of(datetime.fromtimestamp(made / _MICROS, UTC))
    except (ValueError, KeyError, TypeError, OverflowError, OSError):
        return None
    is_named = isinstance(task, str) and _TASK.fullmatch(task)
    return (task, role, hour) if is_named and role in ("source", "target") else None


def _problems(where: str, troubles: dict[str, int], sides: dict[_Side, list[bytes]]) -> list[Problem]:
    """Return the problems of a file, one for each side that it has records of: more of these may be lost."""
    hours: dict[tuple[str | None, str | None], set[str]] = defaultdict(set)
    for task, role, hour in sides:
        hours[task, role].add(hour)
    found = hours or {(None, None): set()}
    return [
        Problem("torn-file", where, f"{count} {trouble}" if count > 1 else trouble, task, role, tuple(sorted(of)))
        for trouble, count in sorted(troubles.items())
        for (task, role), of in sorted(found.items(), key=str)
    ]


def not_captured(files: Iterable[Captured], until: datetime) -> list[Problem]:
    """
    Return a problem for each gap in the numbers of a partition, and for each partition without files up to *until*.

    If its storage is away Capture keeps the events and writes them later (same source). Until then the hours in between
    are undecided; nothing in them is missing.
    Where empty files are not written (`skipEmptyArchives`) nobody can tell a missing tail from a quiet hub. Numbers
    that begin again belong to a hub that was created again.
    """
    hubs: dict[str, dict[str, list[tuple[datetime, Captured]]]] = defaultdict(lambda: defaultdict(list))
    for file in files:
        match = _PATH.fullmatch(file.where)
        if match is not None:
            ended = datetime.strptime("/".join(match.groups()[2:]), "%Y/%m/%d/%H/%M/%S").replace(tzinfo=UTC)
            hubs[match[1]][match[2]].append((ended, file))
    problems: list[Problem] = []
    for partitions in hubs.values():
        for found in partitions.values():
            problems += _gaps(sorted(found))
        has_empty = any(file.last is None for found in partitions.values() for _, file in found)
        if has_empty:
            for found in partitions.values():
                ended, last = max(found)
                if ended < until:
                    text = f"its partition has no file up to {until:%Y-%m-%d %H:%M} UTC: Capture is late"
                    problems.append(Problem("not-captured", last.where, text, hours=_hours(ended, until)))
    return problems


def _gaps(found: Iterable[tuple[datetime, Captured]]) -> Iterable[Problem]:
    before: tuple[datetime, int] | None = None
    for ended, file in found:
        if file.first is None or file.last is None:
            continue
        if before is not None and file.first > before[1] + 1:
            text = f"the events {before[1] + 1} to {file.first - 1} before it are not captured"
            yield Problem("not-captured", file.where, text, hours=_hours(before[0], ended))
        before = ended, file.last


def _hours(start: datetime, end: datetime) -> tuple[str, ...]:
    first = start.replace(minute=0, second=0, microsecond=0)
    return tuple(hours_between(first, end + timedelta(hours=1) - timedelta(seconds=1)))
