"""The raw files of a journal, identified by their paths."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import unquote

from busway_reconcile.journal.hours import hour_of, start_of
from busway_reconcile.journal.problems import Problem
from busway_reconcile.storage import StoredFile

_PATH = re.compile(
    r"task=(?P<task>[^/]+)/date=(?P<date>\d{4}-\d{2}-\d{2})/hour=(?P<hour>\d{2})/role=(?P<role>source|target)"
    r"/(?P<name>[^/]+)\.jsonl\.gz$"
)


class JournalFile(NamedTuple):
    """A raw journal file and the parts of its path."""

    file: StoredFile
    task: str
    hour: str
    role: str
    name: str

    @property
    def state(self) -> StoredFile:
        """The file by its path below the journal, which is the same however the journal is reached."""
        return self.file._replace(path=below_journal(self.file.path))

    @property
    def made_in(self) -> str | None:
        """The hour in which the file was made, by its name: its folder must be the same hour."""
        epoch = self.name.rpartition("-")[2]
        try:
            return hour_of(datetime.fromtimestamp(int(epoch) / 1000, UTC))
        except (ValueError, OverflowError, OSError):
            return None


def below_journal(path: str) -> str:
    """Return the path of a journal file from its task on."""
    return f"task={f'/{path}'.rpartition('/task=')[2]}"


def journal_files(files: Iterable[StoredFile]) -> tuple[list[JournalFile], list[Problem]]:
    """Return the journals among *files*, each once, and the problems of the others."""
    found: dict[tuple[str, str, str], list[JournalFile]] = defaultdict(list)
    problems = []
    for file in files:
        if "/task=" not in file.path:
            continue  # for example the position of a tap
        match = _PATH.search(file.path)
        if match is None:
            problems.append(Problem("not-a-journal", file.path, "not read: its path is not the path of a journal file"))
            continue
        hour = f"{match['date']}T{match['hour']}"
        try:
            start_of(hour)
        except ValueError:
            problems.append(Problem("not-a-journal", file.path, f"not read: {hour} in its path is not an hour"))
            continue
        one = JournalFile(file, unquote(match["task"]), hour, match["role"], match["name"])
        found[one.task, one.role, one.name].append(one)
    kept = []
    for copies in found.values():
        longest = max(copies, key=lambda copy: (copy.file.size, copy.hour == copy.made_in, copy.hour))
        kept.append(longest)
        problems += [
            Problem(
                "duplicated-file",
                copy.file.path,
                f"the same file as {longest.file.path}; read once",
                copy.task,
                copy.role,
                # A shorter copy may have the correct hour; a copy of equal size adds nothing.
                () if copy.file.size == longest.file.size else (copy.hour,),
            )
            for copy in copies
            if copy is not longest
        ]
    return sorted(kept, key=lambda each: each.file.path), sorted(problems)


def hour_in(path: str) -> str | None:
    """Return the hour in the *path* of a journal file, or None."""
    date, found, rest = path.partition("/date=")[2].partition("/hour=")
    return f"{date}T{rest[:2]}" if found else None


def by_hour(files: Sequence[JournalFile]) -> dict[str, list[JournalFile]]:
    """Return *files* by the hour in which they were written."""
    grouped: dict[str, list[JournalFile]] = defaultdict(list)
    for file in files:
        grouped[file.hour].append(file)
    return dict(grouped)
