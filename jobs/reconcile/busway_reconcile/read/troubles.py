"""What is wrong with the content of raw files."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from busway_reconcile.journal import schema
from busway_reconcile.journal.problems import EMPTY, Problem
from busway_reconcile.read.files import JournalFile

MALFORMED, INCOMPLETE, OF_VERSION = "malformed", "incomplete", "version "
"""Troubles of a line; those of a file are in words."""


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
