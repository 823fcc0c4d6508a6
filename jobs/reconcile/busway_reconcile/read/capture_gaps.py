"""
What Capture has not written yet: a gap in the numbers of a partition, or a missing tail.

If its storage is away Capture keeps the events and writes them later (Event Hubs documentation, "Capture events through
Azure Event Hubs"). Until then the hours in between are undecided; nothing in them is missing.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from busway_reconcile.journal.hours import hours_between
from busway_reconcile.journal.problems import Problem

KIND = "not-captured"
# .../PARTITION/YEAR/MONTH/DAY/HOUR/MINUTE/SECOND.avro, the time in which the window of the file ended.
_PATH = re.compile(r"(.*?)([^/]+)/(\d{4})/(\d\d)/(\d\d)/(\d\d)/(\d\d)/(\d\d)\.avro")


class Captured(NamedTuple):
    """A file of Capture: its name, and the numbers of its first and last event; None without events."""

    where: str
    first: int | None
    last: int | None


def not_captured(files: Iterable[Captured], until: datetime) -> list[Problem]:
    """
    Return a problem for each gap in the numbers of a partition, and for each partition without files up to *until*.

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
                    problems.append(Problem(KIND, last.where, text, hours=_hours(ended, until)))
    return problems


def _gaps(found: Iterable[tuple[datetime, Captured]]) -> Iterable[Problem]:
    before: tuple[datetime, int] | None = None
    for ended, file in found:
        if file.first is None or file.last is None:
            continue
        if before is not None and file.first > before[1] + 1:
            text = f"the events {before[1] + 1} to {file.first - 1} before it are not captured"
            yield Problem(KIND, file.where, text, hours=_hours(before[0], ended))
        before = ended, file.last


def _hours(start: datetime, end: datetime) -> tuple[str, ...]:
    first = start.replace(minute=0, second=0, microsecond=0)
    return tuple(hours_between(first, end + timedelta(hours=1) - timedelta(seconds=1)))
