"""What a run reads: the raw journal files of its hours, told apart by their paths, and what is wrong with them."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from urllib.parse import unquote

from jobs.reconcile.storage import StoredFile

_PATH = re.compile(
    r"task=(?P<task>[^/]+)/date=(?P<date>\d{4}-\d{2}-\d{2})/hour=(?P<hour>\d{2})/role=(?P<role>source|target)"
    r"/(?P<name>[^/]+)\.jsonl\.gz$"
)
_HOUR = "%Y-%m-%dT%H"

EMPTY = "empty-file"
"""Kind of the problem that a file has nothing in it; a writer that ends before its first record leaves one behind."""

SETTLE = timedelta(minutes=10)
"""How long after its end an hour may still be written to."""


class Problem(NamedTuple):
    """
    Evidence that is not what it should be: named in the summary, and never counted as clean.

    Shape:   *hours* are those whose records on side *role* of *task* cannot be relied on; empty where none is.
    """

    kind: str
    where: str
    text: str
    task: str | None = None
    role: str | None = None
    hours: tuple[str, ...] = ()


class JournalFile(NamedTuple):
    """A raw journal file and what its path says."""

    file: StoredFile
    task: str
    hour: str
    role: str
    name: str

    @property
    def state(self) -> StoredFile:
        """The file as runs remember it, by its address below the journal: that is the same however it is reached."""
        return self.file._replace(path=below_journal(self.file.path))

    @property
    def made_in(self) -> str | None:
        """The hour in which the file was made, as its name has it: the only one in which it can lie."""
        epoch = self.name.rpartition("-")[2]
        try:
            return hour_of(datetime.fromtimestamp(int(epoch) / 1000, UTC))
        except (ValueError, OverflowError, OSError):
            return None


def below_journal(path: str) -> str:
    """Return the address of a journal file from its task on."""
    return f"task={f'/{path}'.rpartition('/task=')[2]}"


def hour_of(moment: datetime) -> str:
    """Return the hour (UTC) that *moment* lies in, as folders and columns name it."""
    return moment.astimezone(UTC).strftime(_HOUR)


def start_of(hour: str) -> datetime:
    """Return when *hour* begins."""
    return datetime.strptime(hour, _HOUR).replace(tzinfo=UTC)


def hours_between(start: datetime, end: datetime) -> list[str]:
    """Return the hours that begin at *start* or later and before *end*."""
    count = max(int((end - start) / timedelta(hours=1)), 0)
    return [hour_of(start + timedelta(hours=number)) for number in range(count)]


def is_closed(hour: str, now: datetime) -> bool:
    """Tell whether nothing is written to the files of *hour* any more."""
    return now >= start_of(hour) + timedelta(hours=1) + SETTLE


def journal_files(files: Iterable[StoredFile]) -> tuple[list[JournalFile], list[Problem]]:
    """Return those of *files* that are journals, each once, and what is odd about the others."""
    found: dict[tuple[str, str, str], list[JournalFile]] = defaultdict(list)
    problems = []
    for file in files:
        if "/task=" not in file.path:
            continue  # a tap's marks, say
        match = _PATH.search(file.path)
        if match is None:
            problems.append(Problem("not-a-journal", file.path, "its path is not that of a journal file; not read"))
            continue
        hour = f"{match['date']}T{match['hour']}"
        try:
            start_of(hour)
        except ValueError:
            problems.append(Problem("not-a-journal", file.path, f"its path names no hour: {hour}; not read"))
            continue
        one = JournalFile(file, unquote(match["task"]), hour, match["role"], match["name"])
        found[one.task, one.role, one.name].append(one)
    kept = []
    for copies in found.values():
        longest = max(copies, key=lambda each: (each.file.size, each.hour == each.made_in, each.hour))
        kept.append(longest)
        problems += [
            Problem(
                "duplicated-file",
                each.file.path,
                f"the same file as {longest.file.path}; read once",
                each.task,
                each.role,
                # A shorter copy may be the one that is right about its hour; a copy of equal size adds nothing.
                () if each.file.size == longest.file.size else (each.hour,),
            )
            for each in copies
            if each is not longest
        ]
    return sorted(kept, key=lambda each: each.file.path), sorted(problems)


def hour_in(path: str) -> str | None:
    """Return the hour that the *path* of a journal file names, None where it names none."""
    date, found, rest = path.partition("/date=")[2].partition("/hour=")
    return f"{date}T{rest[:2]}" if found else None


def by_hour(files: Sequence[JournalFile]) -> dict[str, list[JournalFile]]:
    """Return *files* by the hour in which they were written."""
    sorted_out: dict[str, list[JournalFile]] = defaultdict(list)
    for each in files:
        sorted_out[each.hour].append(each)
    return dict(sorted_out)
