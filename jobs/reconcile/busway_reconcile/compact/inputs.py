"""
The inputs of a run: its hours compacted, and the list of raw files that a repetition reads again.

A run freezes its raw files in `manifests/RUN.json`, so that it gives the same results when it is repeated.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyspark.sql import SparkSession

from busway_reconcile.compact.hours import Hour, compact_hours, compacted_hours, update_coverage
from busway_reconcile.journal.address import ADDRESS_FILE, address_file, address_of, check_address
from busway_reconcile.journal.hours import hour_of, is_closed
from busway_reconcile.journal.problems import Problem
from busway_reconcile.read.capture import CAPTURED, Kept, not_captured
from busway_reconcile.read.files import JournalFile, below_journal, by_hour, hour_in, journal_files
from busway_reconcile.read.runs import future_records
from busway_reconcile.settings import Run
from busway_reconcile.storage import Storage, StoredFile

Files = dict[str, list[StoredFile]]
"""Journal files by hour, with their paths below the journal."""


class Inputs(NamedTuple):
    """The compacted hours of a run and of the days before it, with their problems."""

    hours: dict[str, Hour]
    changed_before: list[str]
    """Hours before the window that got files after a run had counted them."""
    problems: list[Problem]


def compact_inputs(spark: SparkSession, storage: Storage, run: Run, hours: Sequence[str]) -> Inputs:
    """
    Compact and freeze *hours*, and compact the days before them.

    Raises WrongJournal if the compacted hours belong to another journal, and CompactionFailed.
    """
    _check_journal(storage, run)
    raw, odd = journal_files(storage.files(run.journal))
    problems = [problem for problem in odd if hour_in(problem.where) is None or hour_in(problem.where) in hours]
    problems += _capture_problems(storage, run, hours)
    problems += future_records(raw, run)
    present = by_hour(raw)
    before = sorted(
        hour
        for hour in {*present, *compacted_hours(storage, run.compacted)}
        if run.earliest <= hour < hour_of(run.window.start)
    )
    frozen, earlier = ({}, {}) if run.settings.refreeze else _read_frozen(storage, run.frozen)
    seen = {hour: frozen[hour] for hour in hours if hour in frozen}
    made = compact_hours(spark, storage, raw, run.compacted, now=run.now, hours=[*before, *hours], frozen=seen)
    made = update_coverage(spark, storage, run.compacted, made.values())
    counted = _counted_before(storage, run)
    is_new = len(seen) < len(hours)
    if is_new:
        earlier = {
            hour: _unseen(made[hour].files, present.get(hour, []), counted[hour]) for hour in before if hour in counted
        }
    # A run that reads open hours is not final: its repetition reads all files that exist by then.
    if is_new and all(is_closed(hour, run.now) for hour in run.window.hours):
        frozen |= {hour: list(made[hour].files) for hour in hours}
        content = {
            "run": run.window.run,
            "hours": frozen,
            "earlier": {hour: files for hour, files in earlier.items() if files},
        }
        storage.write(run.frozen, json.dumps(content, indent=1))
    for hour in hours:
        problems += [*made[hour].problems, *_not_read(made[hour], present.get(hour, []), is_frozen=hour in seen)]
    late = _late_files(earlier, counted)
    changed = list(dict.fromkeys(hour for hour, _ in late))
    return Inputs(made, changed, problems + [problem for _, problem in late])


def _check_journal(storage: Storage, run: Run) -> None:
    downloaded, kept = f"{run.journal}/{ADDRESS_FILE}", f"{run.compacted}/{ADDRESS_FILE}"
    is_downloaded = storage.exists(downloaded)
    address = json.loads(storage.read(downloaded))["journal"] if is_downloaded else address_of(run.journal)
    if storage.exists(kept):
        check_address(storage.read(kept), address, run.out)
    else:
        storage.write(kept, address_file(address))


def _capture_problems(storage: Storage, run: Run, hours: Sequence[str]) -> list[Problem]:
    kept = [Kept.from_json(storage.read(file.path)) for file in storage.files(f"{run.journal}/{CAPTURED}")]
    found = [problem for each in kept for problem in each.problems]
    found += not_captured((each.captured for each in kept), run.window.end)
    return [problem for problem in found if {*problem.hours} & {*hours}]


def _counted_before(storage: Storage, run: Run) -> dict[str, set[StoredFile]]:
    """Return, for the hours before the window that runs have counted, the files that these runs read."""
    counted: dict[str, set[StoredFile]] = defaultdict(set)
    for file in storage.files(f"{run.out}/manifests"):
        end = file.path.rpartition("/")[2].removesuffix(".json").partition("--")[2]
        if run.earliest < end <= hour_of(run.window.start):
            for part in _read_frozen(storage, file.path):
                for hour, files in part.items():
                    counted[hour] |= set(files)
    return counted


def _late_files(earlier: Files, counted: Mapping[str, set[StoredFile]]) -> list[tuple[str, Problem]]:
    """Return the hour and the problem of each file that came or changed after a run had counted its hour."""
    found = []
    for hour, files in sorted(earlier.items()):
        known = counted.get(hour, set())
        paths = {file.path for file in known}
        for file in sorted(set(files) - known):
            what = "changed" if file.path in paths else "came"
            text = (
                f"{what} after a run had counted its hour; used only for messages that were left open "
                "(to count it, repeat the run of that hour with --refreeze, and the runs after it)"
            )
            found.append((hour, Problem("changed-input", file.path, text)))
    return found


def _read_frozen(storage: Storage, path: str) -> tuple[Files, Files]:
    """Return the files of the hours of a run, and the files of earlier hours that it was the first to read."""
    if not storage.exists(path):
        return {}, {}
    content = json.loads(storage.read(path))
    hours, earlier = (
        {hour: [StoredFile(below_journal(where), *state) for where, *state in files] for hour, files in part.items()}
        for part in (content["hours"], content.get("earlier", {}))
    )
    return hours, earlier


def _unseen(made: Sequence[StoredFile], present: Sequence[JournalFile], known: set[StoredFile]) -> list[StoredFile]:
    return sorted({*made, *(file.state for file in present)} - known)


def _not_read(made: Hour, present: Sequence[JournalFile], *, is_frozen: bool) -> list[Problem]:
    """Return a problem for each file *present* that is not in *made*."""
    paths = {file.path for file in made.files}
    problems = []
    for file in present:
        if file.state in made.files:
            continue
        what = "changed" if file.state.path in paths else "came"
        if is_frozen:
            text = f"{what} after the first time of this run; not read (to read it, repeat the run with --refreeze)"
            problems.append(Problem("changed-input", file.state.path, text))
        else:
            text = f"{what} after raw files of its hour were compacted and deleted; not read"
            problems.append(Problem("changed-input", file.state.path, text, file.task, file.role, (file.hour,)))
    return problems
