"""The search for one message in journal files on this machine."""

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from shared.journal.hops import Place, Record, place_of

_FILES = "task=*/date=*/hour=*/role=*/*.jsonl.gz"
_HOUR = re.compile(r"/date=(\d{4}-\d\d-\d\d)/hour=(\d\d)/")


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
    """Yield the records of *files*; a file that cannot be read to its end is noted in *problems*."""
    for line in _lines(files, re.compile(b""), problems):
        record = _record(line)
        if record is not None:
            yield record


def search(files: Sequence[Path], message_id: str) -> Found:
    """
    Return the records of the message with *message_id*, and of its other ids.

    An outcome has no id unless an editor changed it: it is found by the sequence number of the record that has. Each
    round reads all files again for what the round before has found.
    """
    problems: dict[str, None] = {}
    ids, places = {message_id}, set[Place]()
    found: dict[str, Record] = {}
    while True:
        known = len(ids), len(places)
        for line in _lines(files, _pattern(ids, places), problems):
            record = _record(line)
            if record is None or not (record.get("message_id") in ids or place_of(record) in places):
                continue
            found[line.decode("ascii", "replace")] = record
            if record.get("src_seq") is not None:
                places.add(place_of(record))
            if "message_id" in record:
                ids.add(record["message_id"])
        if known == (len(ids), len(places)):
            return Found(list(found.values()), list(problems))


def _pattern(ids: Iterable[str], places: Iterable[Place]) -> re.Pattern[bytes]:
    """Return what a line must contain; `_record` compares whole fields afterwards."""
    texts = {f'"message_id":{json.dumps(each)}' for each in ids}
    texts |= {f'"src_seq":{place.sequence_number}' for place in places}
    return re.compile(b"|".join(re.escape(text.encode()) for text in sorted(texts)))


def _lines(files: Iterable[Path], pattern: re.Pattern[bytes], problems: dict[str, None]) -> Iterator[bytes]:
    for path in files:
        try:
            with gzip.open(path) as lines:
                yield from (line for line in lines if pattern.search(line))
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            problems[f"{path}: damaged, {type(error).__name__}; the records before the damage were read"] = None


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None  # the end of a file that was cut off within a line
    return record if isinstance(record, dict) and "outcome" in record and "src_entity" in record else None
