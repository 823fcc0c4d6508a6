"""Markers: the JSON files that say which hours are compacted, and from which raw files."""

import json
from typing import Any, NamedTuple

from busway_reconcile.journal.problems import Problem
from busway_reconcile.read.files import below_journal
from busway_reconcile.storage import Storage, StoredFile

VERSION = 6
"""Version of a marker: those before have no coverage, or less of it."""


class Hour(NamedTuple):
    """A compacted hour: its raw files, its number of records, its problems, and its rows of COVERAGE."""

    hour: str
    files: tuple[StoredFile, ...]
    records: int
    problems: tuple[Problem, ...]
    made: str
    coverage: tuple[dict[str, Any], ...] = ()
    version: int = VERSION


def compacted_hours(storage: Storage, folder: str) -> set[str]:
    """Return the hours that are compacted in *folder*."""
    names = (each.path.rpartition("/")[2] for each in storage.files(f"{folder}/hours"))
    return {name.removesuffix(".json") for name in names if name.endswith(".json")}


def read_marker(storage: Storage, folder: str, hour: str) -> Hour | None:
    """Return the marker of *hour*, or None if the hour is not compacted."""
    path = _path(folder, hour)
    if not storage.exists(path):
        return None
    values = json.loads(storage.read(path))
    return Hour(
        values["hour"],
        tuple(StoredFile(below_journal(path), size, modified) for path, size, modified in values["files"]),
        values["records"],
        tuple(Problem.from_list(each) for each in values["problems"]),
        values["made"],
        tuple(values.get("coverage", ())),
        values.get("version", 1),
    )


def write_marker(storage: Storage, folder: str, hour: Hour) -> None:
    """Mark *hour* as compacted in *folder*."""
    storage.write(_path(folder, hour.hour), json.dumps(hour._asdict(), indent=1))


def delete_marker(storage: Storage, folder: str, hour: str) -> None:
    """Mark *hour* as not compacted in *folder*."""
    storage.delete(_path(folder, hour))


def _path(folder: str, hour: str) -> str:
    return f"{folder}/hours/{hour}.json"
