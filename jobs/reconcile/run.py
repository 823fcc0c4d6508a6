"""What a run reads: the hours that are over, compacted and frozen, and the run before."""

import json
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile import compaction
from jobs.reconcile.inputs import SETTLE, Problem, hour_in, hour_of, is_closed, journal_files, start_of
from jobs.reconcile.session import prepared
from jobs.reconcile.settings import Settings, Window
from jobs.reconcile.storage import Storage
from jobs.reconcile.summary import Summary


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
        """Compact what is needed, freeze it, and name what is wrong with it."""
        raw, odd = journal_files(self.storage.files(self.journal))
        self.problems += [each for each in odd if hour_in(each.where) is None or hour_in(each.where) in hours]
        frozen = self._frozen()
        earliest = hour_of(self.window.start - self.settings.open_for)
        before = {each.hour for each in raw if earliest <= each.hour < hour_of(self.window.start)}
        wanted = sorted({*before, *hours} - set(frozen or ()))
        made = compaction.compact(self.spark, raw, self.compacted, now=self.now, hours=wanted)
        if frozen is None:
            frozen = {hour: [list(each) for each in made[hour].files] for hour in hours}
            self.storage.write(self._manifest, json.dumps({"run": self.window.run, "hours": frozen}, indent=1))
        else:
            made |= self._as_frozen(frozen, hours, {each.file for each in raw if each.hour in hours})
        compaction.index_again(self.spark, self.compacted, made.values())
        for hour in hours:
            self.problems += made[hour].problems
            if made[hour].repeats:
                self.notes.append(f"{hour}: {made[hour].repeats} records were there twice and counted once")
        return made

    @property
    def _manifest(self) -> str:
        return f"{self.out}/manifests/{self.window.run}.json"

    def _frozen(self) -> dict[str, list[list[Any]]] | None:
        if self.settings.refreeze or not self.storage.exists(self._manifest):
            return None
        hours: dict[str, list[list[Any]]] = json.loads(self.storage.read(self._manifest))["hours"]
        return hours

    def _as_frozen(
        self, frozen: dict[str, list[list[Any]]], hours: list[str], present: set[Any]
    ) -> dict[str, compaction.Hour]:
        made = {}
        for hour in hours:
            marker = compaction.read_marker(self.storage, self.compacted, hour)
            if marker is None or hour not in frozen or [list(each) for each in marker.files] != frozen[hour]:
                raise compaction.CompactionFailed(
                    f"{hour}: it is not compacted as this run saw it first; repeat the run with refreeze"
                )
            made[hour] = marker
        known = {tuple(each) for files in frozen.values() for each in files}
        paths = {path for path, _, _ in known}
        for file in sorted(present):
            if tuple(file) not in known:
                what = "has changed since" if file.path in paths else "has come since"
                text = f"it {what} this run was first made; not read (repeat with refreeze to take it in)"
                self.problems.append(Problem("changed-input", file.path, text))
        return made

    def previous(self) -> Summary | None:
        """Return the run that ended last before this one begins."""
        found = None
        for name in self.storage.folders(f"{self.out}/runs"):
            path = f"{self.out}/runs/{name}/summary.json"
            if not self.storage.exists(path):
                continue
            one = Summary.from_json(self.storage.read(path))
            if one.previous_run == self.window.run:
                self.notes.append(f"run {one.run} began with what this run left open: repeat it too")
            ends = datetime.fromisoformat(one.end)
            if ends <= self.window.start and (found is None or ends > datetime.fromisoformat(found.end)):
                found = one
        if found is not None and datetime.fromisoformat(found.end) < self.window.start:
            self.problems.append(
                Problem("not-reconciled", found.end, f"no run counted the hours from here to {self.window.start}")
            )
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
