"""
The raw files of a journal, identified by their paths, and what is wrong with them.

A file may be there twice, be a copy of another one under another name, be empty, or have content that is no record.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import unquote

from busway_reconcile.journal import schema
from busway_reconcile.journal.hours import hour_of, start_of
from busway_reconcile.journal.problems import EMPTY, Problem
from busway_reconcile.storage import Storage, StoredFile

MALFORMED, INCOMPLETE, OF_VERSION = "malformed", "incomplete", "version "
"""Troubles of a line; those of a file are in words."""

_CONCURRENT = 8

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


def find_copies(storage: Storage, files: Sequence[JournalFile], among: Sequence[JournalFile]) -> dict[str, JournalFile]:
    """Return the paths of those *files* that are copies of another file in *among*, each with its original."""
    by_size: dict[tuple[str, str, int], list[JournalFile]] = defaultdict(list)
    for file in among:
        by_size[file.task, file.role, file.file.size].append(file)
    wanted = {(file.task, file.role, file.file.size) for file in files if file.file.size}
    found: dict[str, JournalFile] = {}
    for key in wanted:
        if len(by_size[key]) > 1:
            found |= _full_copies(storage, by_size[key])
    found |= _partial_copies(storage, [file for file in files if file.file.path not in found], among)
    return {file.file.path: found[file.file.path] for file in files if file.file.path in found}


def _partial_copies(
    storage: Storage, files: Sequence[JournalFile], among: Sequence[JournalFile]
) -> dict[str, JournalFile]:
    """Return those *files* in an hour that their name does not have whose content is the beginning of another file."""
    found = {}
    for one in files:
        # A writer names a file after the hour in which it makes it: a file elsewhere was moved or copied.
        if one.hour == one.made_in or not one.file.size:
            continue
        longer = [
            file for file in among if (file.task, file.role) == (one.task, one.role) and file.file.size > one.file.size
        ]
        sums = _sums(storage, [one, *longer], one.file.size)
        same = [file for file in longer if sums[file.file.path] == sums[one.file.path]]
        if same:
            found[one.file.path] = min(same, key=lambda each: each.file.path)
    return found


def _full_copies(storage: Storage, alike: Sequence[JournalFile]) -> dict[str, JournalFile]:
    """Return the copies among files of one task, role and size."""
    sums = _sums(storage, alike, alike[0].file.size)
    contents: dict[str, list[JournalFile]] = defaultdict(list)
    for file in alike:
        contents[sums[file.file.path]].append(file)
    found: dict[str, JournalFile] = {}
    for same in contents.values():
        # The original is in the hour that its name contains.
        original = min(same, key=lambda each: (each.hour != each.made_in, len(each.name), each.file.path))
        found |= {file.file.path: original for file in same if file is not original}
    return found


def _sums(storage: Storage, files: Iterable[JournalFile], size: int) -> dict[str, str]:
    """Return a checksum of the first *size* bytes of each of *files*, by its path."""
    paths = [file.file.path for file in files]
    with ThreadPoolExecutor(_CONCURRENT) as pool:
        return dict(zip(paths, pool.map(lambda path: storage.digest(path, size), paths), strict=True))


def copy_problems(files: Sequence[JournalFile], originals: Mapping[str, JournalFile]) -> list[Problem]:
    """Return a problem for each of *files* that find_copies() found; a copy makes no hour unreliable."""
    return [
        Problem("duplicated-file", file.file.path, _text(file, original), file.task, file.role)
        for file in files
        if (original := originals.get(file.file.path)) is not None
    ]


def _text(copy: JournalFile, original: JournalFile) -> str:
    what = "a copy" if copy.file.size == original.file.size else "a partial copy"
    return f"{what} of {original.state.path}; read once"


def empty_files(files: Sequence[JournalFile]) -> list[Problem]:
    """
    Return a problem for each of *files* without content.

    A writer that ends before its first record leaves such a file. It makes that of the outcomes after it has written an
    entry: if all files of an instance and hour are empty, on both sides, their content is lost.
    """
    of_instance: dict[tuple[str, str, str], list[JournalFile]] = defaultdict(list)
    for file in files:
        of_instance[file.task, file.hour, file.name.rpartition("-")[0]].append(file)
    problems = []
    for same in of_instance.values():
        empty = [file for file in same if not file.file.size]
        is_lost = len(empty) == len(same) and len({file.role for file in empty}) > 1
        kind, rest = ("torn-file", ", nor have the others of its instance and hour") if is_lost else (EMPTY, "")
        problems += [_problem(kind, file, f"the file has no content{rest}") for file in empty]
    return problems


def content_problems(file: JournalFile, troubles: Mapping[str, int]) -> list[Problem]:
    """Return a problem for each of *troubles*, which have their numbers in *file*."""
    problems = []
    for trouble, count in sorted(troubles.items()):
        if trouble == MALFORMED:
            problems.append(_problem("malformed-record", file, f"{count} lines that are not journal records"))
        elif trouble == INCOMPLETE:
            problems.append(_problem("malformed-record", file, f"{count} records without a required field"))
        elif trouble.startswith(OF_VERSION):
            text = f"{count} records of {trouble}, expected {schema.VERSION}"
            problems.append(_problem("unknown-version", file, text))
        else:
            problems.append(_problem("torn-file", file, trouble))
    return problems


def _problem(kind: str, file: JournalFile, trouble: str) -> Problem:
    return Problem(kind, file.file.path, trouble, file.task, file.role, (file.hour,))
