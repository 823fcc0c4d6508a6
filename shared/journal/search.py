"""The search for one message in journal files on this machine."""

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from shared.journal.hops import EnqueuedTimes, Place, place_of
from shared.journal.record import FIELDS, GAP, Record, is_record

_FILES = "task=*/date=*/hour=*/role=*/*.jsonl.gz"
_HOUR = re.compile(r"/date=(\d{4}-\d\d-\d\d)/hour=(\d\d)/")
_LONGEST_LINE = 1 << 20
_MOST_RATIO, _ALWAYS_TAKEN = 100, 16 << 20
"""How many times as large as its file a text may be: a few bytes can become a thousand times as many."""
_FIELDS = frozenset(field.name for field in FIELDS)
_MOST_RECORDS, _MOST_ROUNDS = 10_000, 50


class Found(NamedTuple):
    """The records of a message, and the problems of files that could not be read to their end."""

    records: list[Record]
    problems: list[str]


def files_in(folder: Path, hours: Iterable[str]) -> list[Path]:
    """Return the journal files of *hours* (2026-11-20T23) below *folder*, sorted."""
    wanted = set(hours)
    found = []
    for path in folder.glob(_FILES):
        hour = _HOUR.search(path.as_posix())
        if hour is not None and f"{hour[1]}T{hour[2]}" in wanted:
            found.append(path)
    return sorted(found)


def records_in(files: Iterable[Path], problems: dict[str, None]) -> Iterator[Record]:
    """Yield the records of *files*; *problems* gets each file with other lines, or with a damage that ends it."""
    for _, record in _records(files, re.compile(b""), problems):
        # Readers of manifests know other fields, which nobody has checked here.
        yield {name: value for name, value in record.items() if name in _FIELDS}


def search(files: Sequence[Path], message_id: str) -> Found:
    """
    Return the records of the message with *message_id*, and of its other ids.

    An outcome has no id unless an editor changed it: it is found by the sequence number of the record that has, and by
    when that was enqueued. Each round reads all files again for what the round before has found.
    """
    problems: dict[str, None] = {}
    ids, places, times = {message_id}, dict[Place, set[int | None]](), EnqueuedTimes()
    found: dict[str, Record] = {}
    for _ in range(_MOST_ROUNDS):
        known = len(ids), sum(map(len, places.values()))
        without_time: dict[str, Record] = {}
        for line, record in _records(files, _pattern(ids, places), problems):
            times.note(record)
            place, time, text = place_of(record), times.of(record), line.decode("ascii", "replace")
            is_of_it = record.get("message_id") in ids
            if record["outcome"] == GAP or not (is_of_it or place in places):
                continue
            if not is_of_it and time not in places[place]:
                if time is None:
                    without_time[text] = record
                continue
            found[text] = record
            if record.get("src_seq") is not None:
                places.setdefault(place, set()).add(time)
            if record.get("message_id") is not None:
                ids.add(record["message_id"])
            if len(found) > _MOST_RECORDS:
                problems[f"more than {_MOST_RECORDS:,} records: the others are not shown"] = None
                return Found(list(found.values()), list(problems))
        if known == (len(ids), sum(map(len, places.values()))):
            found |= {text: record for text, record in without_time.items() if times.of(record) is None}
            return Found(list(found.values()), list(problems))
    problems["its ids and places lead to ever more others: these are not shown"] = None
    return Found(list(found.values()), list(problems))


def _pattern(ids: Iterable[str], places: Iterable[Place]) -> re.Pattern[bytes]:
    """Return what a line must contain; `search` compares whole fields afterwards."""
    texts = {f'"message_id":{json.dumps(each)}' for each in ids}
    texts |= {f'"src_seq":{place.sequence_number}' for place in places}
    return re.compile(b"|".join(re.escape(text.encode()) for text in sorted(texts)))


def _records(
    files: Iterable[Path], pattern: re.Pattern[bytes], problems: dict[str, None]
) -> Iterator[tuple[bytes, Record]]:
    for path in files:
        try:
            with gzip.open(path) as text:
                for line in _lines(text, max(_MOST_RATIO * path.stat().st_size, _ALWAYS_TAKEN)):
                    if not pattern.search(line):
                        continue
                    record = _json(line)
                    if is_record(record):
                        yield line, record
                    else:
                        problems[f"{path}: has lines that are no records of a journal, which were left out"] = None
        except (EOFError, gzip.BadGzipFile, zlib.error, _TooLarge) as error:
            cause = "too large for its bytes" if isinstance(error, _TooLarge) else type(error).__name__
            problems[f"{path}: damaged, {cause}; the records before the damage were read"] = None


class _TooLarge(Exception):
    """The text of a file, or a line of it, is larger than a task writes it."""


def _lines(text: gzip.GzipFile, most: int) -> Iterator[bytes]:
    size = 0
    while line := text.readline(_LONGEST_LINE):
        size += len(line)
        if size > most or len(line) == _LONGEST_LINE:
            raise _TooLarge
        yield line


def _json(line: bytes) -> object:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
