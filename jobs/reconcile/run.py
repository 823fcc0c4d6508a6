"""What a run reads: the hours that are over, compacted and frozen, and the run before."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile import compaction
from jobs.reconcile.capture import CAPTURED, problems_in
from jobs.reconcile.inputs import (
    SETTLE,
    JournalFile,
    Problem,
    below_journal,
    by_hour,
    hour_in,
    hour_of,
    is_closed,
    journal_files,
    start_of,
)
from jobs.reconcile.origin import NOTE, address_of, check_note, note_of
from jobs.reconcile.session import prepared
from jobs.reconcile.settings import Settings, Window
from jobs.reconcile.storage import Storage, StoredFile
from jobs.reconcile.summary import Summary

Files = dict[str, list[StoredFile]]
"""Hours, and of each the journal files, with their addresses below the journal."""


class Run:
    """One run on its way: what it reads, and what is wrong with that."""

    def __init__(
        self, spark: SparkSession, journal: str, out: str, window: Window, now: datetime, *, settings: Settings
    ) -> None:
        """Put the session's settings right; nothing is read yet."""
        self.spark = prepared(spark)
        self.storage = Storage(spark)
        self.journal = self.storage.absolute(journal)
        self.out = self.storage.absolute(out)
        self.compacted = f"{self.out}/compacted"
        self.window = window
        self.now = now
        self.settings = settings
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self.renamed: dict[str, str] = {}
        self.changed_before: list[str] = []
        """Hours before the window into which something came that the run that counted them has not seen."""

    # What is read

    def closed_hours(self) -> list[str]:
        """Return the hours of the window that can be read, and name the first that cannot."""
        hours = self.window.hours
        if self.settings.writers_stopped:
            return [hour for hour in hours if start_of(hour) <= self.now]
        still_open = [hour for hour in hours if not is_closed(hour, self.now)]
        if not still_open:
            return hours
        readable = start_of(still_open[-1]) + timedelta(hours=1) + SETTLE
        self.problems.append(
            Problem(
                "hour-open",
                still_open[0],
                f"still being written: {len(still_open)} of {len(hours)} hours from here on are not counted; "
                f"all can be read from {readable:%Y-%m-%d %H:%M} on",
            )
        )
        return [hour for hour in hours if hour < still_open[0]]

    def inputs(self, hours: list[str]) -> dict[str, compaction.Hour]:
        """
        Compact what is needed, freeze it, and name what is wrong with it.

        Raises AnotherJournal where what lies there compacted is of another one, and CompactionFailed.
        """
        self._keep_to_one_journal()
        raw, odd = journal_files(self.storage.files(self.journal))
        self.problems += [each for each in odd if hour_in(each.where) is None or hour_in(each.where) in hours]
        for note in self.storage.files(f"{self.journal}/{CAPTURED}"):
            if note.size > len("[]"):
                told = problems_in(self.storage.read(note.path))
                self.problems += [each for each in told if {*each.hours} & {*hours}]
        present = by_hour(raw)
        before = sorted(
            hour
            for hour in {*present, *compaction.compacted_hours(self.storage, self.compacted)}
            if self._earliest <= hour < hour_of(self.window.start)
        )
        frozen, earlier = ({}, {}) if self.settings.refreeze else _files_of(self.storage, self._manifest)
        seen = {hour: frozen[hour] for hour in hours if hour in frozen}
        made = compaction.compact(self.spark, raw, self.compacted, now=self.now, hours=[*before, *hours], frozen=seen)
        compaction.index_again(self.spark, self.compacted, made.values())
        counted = self._counted_before()
        is_new = len(seen) < len(hours)
        if is_new:
            earlier = {
                hour: _unseen(made[hour].files, present.get(hour, []), counted[hour])
                for hour in before
                if hour in counted
            }
        # What was read while hours were open is not final: a repetition reads what is there by then.
        if is_new and all(is_closed(hour, self.now) for hour in self.window.hours):
            frozen |= {hour: list(made[hour].files) for hour in hours}
            kept = {
                "run": self.window.run,
                "hours": frozen,
                "earlier": {hour: files for hour, files in earlier.items() if files},
            }
            self.storage.write(self._manifest, json.dumps(kept, indent=1))
        for hour in hours:
            self.problems += [
                *made[hour].problems,
                *_not_read(made[hour], present.get(hour, []), is_frozen=hour in seen),
            ]
            if made[hour].repeats:
                self.notes.append(f"{hour}: {made[hour].repeats} records were there twice and counted once")
        self._name_changes_before(earlier, counted)
        return made

    def _keep_to_one_journal(self) -> None:
        brought, kept = f"{self.journal}/{NOTE}", f"{self.compacted}/{NOTE}"
        is_brought = self.storage.exists(brought)
        address = json.loads(self.storage.read(brought))["journal"] if is_brought else address_of(self.journal)
        if self.storage.exists(kept):
            check_note(self.storage.read(kept), address, self.out)
        else:
            self.storage.write(kept, note_of(address))

    @property
    def _manifest(self) -> str:
        return f"{self.out}/manifests/{self.window.run}.json"

    @property
    def _earliest(self) -> str:
        return hour_of(self.window.start - self.settings.open_for)

    def _counted_before(self) -> dict[str, set[StoredFile]]:
        """Return for the hours before the window that runs have counted which files these have seen."""
        counted: dict[str, set[StoredFile]] = defaultdict(set)
        for file in self.storage.files(f"{self.out}/manifests"):
            end = file.path.rpartition("/")[2].removesuffix(".json").partition("--")[2]
            if self._earliest < end <= hour_of(self.window.start):
                for part in _files_of(self.storage, file.path):
                    for hour, files in part.items():
                        counted[hour] |= set(files)
        return counted

    def _name_changes_before(self, earlier: Files, counted: Mapping[str, set[StoredFile]]) -> None:
        for hour, files in sorted(earlier.items()):
            known = counted.get(hour, set())
            paths = {each.path for each in known}
            for file in sorted(set(files) - known):
                what = "has changed" if file.path in paths else "has come"
                text = (
                    f"it {what} since its hour was counted; it is looked at for what was left open, and for no more "
                    "(repeat the run of that hour with refreeze, and those that follow)"
                )
                self.problems.append(Problem("changed-input", file.path, text))
                if hour not in self.changed_before:
                    self.changed_before.append(hour)

    def previous(self) -> Summary | None:
        """Return the run that ended last before this one begins."""
        found = None
        for name in self.storage.folders(f"{self.out}/runs"):
            path = f"{self.out}/runs/{name}/summary.json"
            if name.startswith(".") or not self.storage.exists(path):
                continue
            try:
                one = Summary.from_json(self.storage.read(path))
            except (ValueError, LookupError, TypeError) as error:
                text = f"it is no summary of a run; expected what this job writes ({type(error).__name__})"
                self.problems.append(Problem("unreadable-summary", path, text))
                continue
            if one.previous_run == self.window.run:
                self.notes.append(f"run {one.run} began with what this run left open: repeat it too")
            ends = datetime.fromisoformat(one.end)
            if ends <= self.window.start and (found is None or ends > datetime.fromisoformat(found.end)):
                found = one
        # A run that was made while its last hours were open has not counted those.
        if found is not None and datetime.fromisoformat(found.counted_until) <= self.window.start - timedelta(hours=1):
            text = f"no run counted the hours from here to {self.window.start}"
            self.problems.append(Problem("not-reconciled", found.counted_until, text))
        return found

    def load(self, table: str, hours: list[str]) -> DataFrame | None:
        """Return a compacted table under the names that tasks have now."""
        frame = compaction.load(self.spark, self.compacted, table, hours)
        return None if frame is None else self.under_new_names(frame)

    def under_new_names(self, frame: DataFrame) -> DataFrame:
        """Return *frame* with the task names that followed on those it has."""
        task = F.col("task")
        for old in self.renamed:
            task = F.when(F.col("task") == old, F.lit(latest_name(old, self.renamed))).otherwise(task)
        return frame.withColumn("task", task) if self.renamed else frame


def latest_name(task: str, names: dict[str, str]) -> str:
    """Return what *task* is called now, after the renamings *names* (old to new)."""
    seen = {task}
    while task in names and names[task] not in seen:
        task = names[task]
        seen.add(task)
    return task


def _files_of(storage: Storage, path: str) -> tuple[Files, Files]:
    """Return the files of the hours that the manifest *path* is of, and those that its run was the first to see."""
    if not storage.exists(path):
        return {}, {}
    told = json.loads(storage.read(path))
    hours, earlier = (
        {hour: [StoredFile(below_journal(where), *state) for where, *state in files] for hour, files in part.items()}
        for part in (told["hours"], told.get("earlier", {}))
    )
    return hours, earlier


def _unseen(made: Sequence[StoredFile], present: Sequence[JournalFile], known: set[StoredFile]) -> list[StoredFile]:
    return sorted({*made, *(each.state for each in present)} - known)


def _not_read(made: compaction.Hour, present: Sequence[JournalFile], *, is_frozen: bool) -> list[Problem]:
    """Return a problem for each file *present* that *made* is not of."""
    paths = {each.path for each in made.files}
    problems = []
    for each in present:
        if each.state in made.files:
            continue
        what = "has changed" if each.state.path in paths else "has come"
        if is_frozen:
            text = f"it {what} since this run was first made; not read (repeat with refreeze to take it in)"
            problems.append(Problem("changed-input", each.state.path, text))
        else:
            text = f"it {what} since other files of its hour were deleted that had been compacted; not read"
            problems.append(Problem("changed-input", each.state.path, text, each.task, each.role, (each.hour,)))
    return problems
