"""
A run: the journals of a window and what the run before left open, in; verdicts, findings and a summary, out.

A run is a function of its frozen inputs, of the open items of the run before, and of earlier hours: to repeat it gives
the same results. It writes into a folder of its own, the summary last; a folder without one is no run.
"""

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile import compaction, index, schema
from jobs.reconcile.evidence import TaskEvidence, gaps, gathered, missing_sides, renamed, sources_as_targets
from jobs.reconcile.inputs import SETTLE, Problem, hour_of, is_closed, journal_files, start_of
from jobs.reconcile.placement import placed
from jobs.reconcile.session import prepared
from jobs.reconcile.settings import Settings, Window
from jobs.reconcile.states import keyed, states
from jobs.reconcile.storage import Storage
from jobs.reconcile.summary import Summary, TaskSummary, added, concluded, percentiles
from jobs.reconcile.suspects import across_hours, compared, micros_of, rows_of
from jobs.reconcile.verdicts import BY_DESIGN, FINDINGS, OPEN, UNDECIDED, judged

RESULTS = ("findings", "explained", "evidence", "missing", "open", "verdicts", "lags")

_KEPT = StorageLevel.MEMORY_AND_DISK
_BROADCAST_LIMIT = 1_000_000  # buckets
_TAIL = 20  # sent messages that a tap must have passed over, before it is taken for silent rather than them for lost


@dataclass(frozen=True)
class Result:
    """What a run found and where its tables are."""

    summary: Summary
    tables: dict[str, str]

    @property
    def exit_code(self) -> int:
        """0 clean, 1 findings, 2 could not decide."""
        return self.summary.exit_code


class _Run:
    """One run on its way: what the steps share."""

    def __init__(
        self, spark: SparkSession, journal: str, out: str, window: Window, now: datetime, settings: Settings
    ) -> None:
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
        self.problems += [each for each in odd if _hour_in(each.where) is None or _hour_in(each.where) in hours]
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
            task = F.when(F.col("task") == old, F.lit(_latest(old, self.renamed))).otherwise(task)
        return frame.withColumn("task", task) if self.renamed else frame


def reconcile(
    spark: SparkSession,
    journal: str,
    out: str,
    *,
    window: Window,
    now: datetime,
    settings: Settings | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Result:
    """
    Say of every message that the *journal* tells of in *window* what became of it, and write that below *out*.

    Shape:   *journal* is a folder with task=…/date=…/hour=…/role=… below it, as Spark reads it (path or abfss address);
             *now* decides which hours are over. Tables: `Result.tables`, one folder of Parquet files each.
    Raises:  CompactionFailed where what is kept is not what was read.
    """
    run = _Run(spark, journal, out, window, now, settings or Settings())
    hours = run.closed_hours()
    progress(f"compacting what is new of {len(hours)} hours")
    made = run.inputs(hours)
    previous = run.previous()
    earlier = [hour for hour in made if hour < hour_of(window.start)]
    progress("comparing buckets")
    return _Reckoning(run, hours, earlier, previous).result(progress, sum(len(made[hour].files) for hour in hours))


class _Reckoning:
    """The part of a run that reads compacted hours only."""

    def __init__(self, run: _Run, hours: list[str], earlier: list[str], previous: Summary | None) -> None:
        self.run, self.hours, self.earlier, self.previous = run, hours, earlier, previous
        self.settings, self.spark = run.settings, run.spark
        end = start_of(hours[-1]) + timedelta(hours=1) if hours else run.window.start
        self.end = min(end, run.now) if self.settings.writers_stopped else end
        self.tasks = self._evidence()
        self.renamed = run.renamed

    def _evidence(self) -> dict[str, TaskEvidence]:
        run = self.run
        run.renamed = dict(self.previous.renamed) if self.previous else {}
        frame = compaction.load(self.spark, run.compacted, "coverage", self.hours)
        self.coverage = [] if frame is None else [row.asDict() for row in frame.collect()]
        before = {each.task: {"sources": each.sources, "last": each.last} for each in self._tasks_before()}
        found = renamed(gathered(self.coverage), before)
        run.renamed |= found
        for old, new in sorted(found.items()):
            run.problems.append(
                Problem("renamed-task", old, f"it takes from its source under the name {new} now; counted as one task")
            )
        for row in self.coverage:
            row["task"] = _latest(row["task"], run.renamed)
        run.problems += missing_sides(self.coverage)
        tasks = gathered(self.coverage)
        run.notes += [
            f"{each.task}: no record in this window; it had some in run {self.previous.run}"
            for each in self._tasks_before()
            if self.previous is not None and each.last and _latest(each.task, run.renamed) not in tasks
        ]
        return tasks

    def _tasks_before(self) -> list[TaskSummary]:
        return self.previous.tasks if self.previous else []

    def result(self, progress: Callable[[str], None], files: int) -> Result:
        """Judge, write, and sum up."""
        buckets = self._buckets()
        clean = [] if buckets is None else self._clean_counts(buckets)
        first = min((row["first_enqueued"] for row in clean if row["first_enqueued"] is not None), default=None)
        self._name_clocks(clean)
        progress("looking at the buckets that differ")
        rows = self._rows(buckets, first)
        verdicts = None
        if rows is not None:
            rows = rows.persist(_KEPT)
            verdicts = self._judged(rows).persist(_KEPT)
        try:
            summary = self._summary(clean, verdicts, files)
            progress("writing")
            return self._write(summary, rows, verdicts)
        finally:
            for frame in (rows, verdicts, buckets):
                if frame is not None:
                    frame.unpersist()

    # Buckets

    def _watched(self) -> list[tuple[str, str, str | None]]:
        found: list[tuple[str, str, str | None]] = []
        for one in self.tasks.values():
            found += [(one.task, "target", target) for target in one.target_taps]
            if one.source_taps:
                found.append((one.task, "source", None))
        return found

    def _tapped(self) -> DataFrame:
        return self.spark.createDataFrame(self._watched(), "task string, role string, target string")

    def _buckets(self) -> DataFrame | None:
        digests = self.run.load("digests", self.hours)
        if digests is None:
            return None
        return compared(digests, self._tapped(), self.run.window.start, self.settings).persist(_KEPT)

    def _clean_counts(self, buckets: DataFrame) -> list[dict[str, Any]]:
        counted = ("received", "sent", *schema.WITHHELD)
        rows = buckets.groupBy("task", "clean").agg(
            F.count("*").alias("buckets"),
            *(F.sum(name).alias(name) for name in counted),
            F.min("first_enqueued").alias("first_enqueued"),
            F.min("least_lag").alias("least_lag"),
        )
        return [row.asDict() for row in rows.collect()]

    def _name_clocks(self, clean: list[dict[str, Any]]) -> None:
        least: dict[str, int] = {}
        for row in clean:
            if row["least_lag"] is not None:
                least[row["task"]] = min(row["least_lag"], least.get(row["task"], row["least_lag"]))
        for task, lag in sorted(least.items()):
            if lag < -self.settings.clock_tolerance.total_seconds() * 1_000_000:
                text = f"messages arrived up to {-lag / 1_000_000:,.1f} s before they were enqueued: lags are not to be trusted"
                self.run.problems.append(Problem("clocks-disagree", task, text, task))

    # Rows

    def _rows(self, buckets: DataFrame | None, first: int | None) -> DataFrame | None:
        """Return all evidence on the messages that have to be looked at, keyed."""
        parts = []
        earlier = self._hours_from(first)
        behind = self._behind(earlier)
        records = self.run.load("records", self.hours)
        loose = self.run.load("loose", self.hours)
        if records is not None and buckets is not None:
            suspects = buckets.where("not clean").select(*index.BUCKET)
            if behind is not None:
                suspects = suspects.unionByName(behind.select(*index.BUCKET[:4], index.block().alias("block")))
            if loose is not None:
                nearby = loose.where("src_seq is not null and src_part is null").select(
                    *index.BUCKET[:3], index.block().alias("block")
                )
                suspects = suspects.unionByName(buckets.select(*index.BUCKET).join(nearby, nearby.columns, "left_semi"))
            suspects = suspects.distinct().persist(_KEPT)
            count = suspects.count()
            if count:
                parts.append(rows_of(records, suspects, broadcast=count <= _BROADCAST_LIMIT))
        if loose is not None:
            parts.append(loose.where(index.unnumbered()).where(~self._is_foreign()))
        window = [
            part.withColumns(
                {"known": F.lit("window"), "known_since": F.lit(None).cast("string"), "doubted": F.lit(False)}
            )
            for part in parts
        ]
        opened = self._open_before()
        if opened is not None:
            window.append(opened)
        if not window:
            return None
        found = reduce(DataFrame.unionByName, window)
        if earlier and (parts or opened is not None):
            known = self._known_earlier(found, earlier)
            found = found if known is None else found.unionByName(known)
        return self._marked(keyed(placed(found)), behind)

    def _hours_from(self, first: int | None) -> list[str]:
        """Return the earlier hours that may hold evidence on messages enqueued at *first* or later."""
        horizon = self.run.window.start - self.settings.open_for
        since = horizon if first is None else max(
            horizon, datetime.fromtimestamp(first / 1_000_000, UTC) - self.settings.clock_tolerance
        )  # fmt: skip
        # A record that was written apart from its message's entry is of the hour before at most.
        since = min(since, self.run.window.start - timedelta(hours=1))
        return [hour for hour in self.earlier if hour >= hour_of(since)]

    def _behind(self, earlier: list[str]) -> DataFrame | None:
        """Return the arrivals that came after a later message of their order key."""
        within = self.run.load("behind", self.hours)
        sessions = self.run.load("sessions", [*earlier, *self.hours])
        if sessions is None:
            return within
        across = across_hours(sessions).where(F.col("landed").isin(self.hours)).persist(_KEPT)
        if across.isEmpty():
            return within
        records = self.run.load("records", self.hours)
        if records is None:
            return within
        keys = ["landed", *index.SESSION]
        late = (
            _null_safe_join(index.ordered_arrivals(records), F.broadcast(across), keys)
            .where("src_seq < highest_earlier")
            .drop("highest_earlier")
        )
        found = late if within is None else within.select(*late.columns).unionByName(late)
        return found.distinct().persist(_KEPT)

    def _open_before(self) -> DataFrame | None:
        if self.previous is None:
            return None
        path = f"{self.run.out}/runs/{self.previous.run}/open"
        if not self.run.storage.exists(path):
            return None
        frame = self.run.under_new_names(self.spark.read.parquet(path))
        return frame.withColumns({"known": F.lit("open")})

    def _known_earlier(self, found: DataFrame, earlier: list[str]) -> DataFrame | None:
        """Return the earlier evidence on messages that an earlier run may have decided."""
        records = self.run.load("records", earlier)
        if records is None:
            return None
        number = ["task", "src_site", "src_entity", "src_part", "src_seq"]
        before = micros_of(self.run.window.start + self.settings.clock_tolerance)
        numbered = found.where("src_seq is not null")
        returning = (
            numbered.where("known = 'window'")
            .where(F.col("enqueued_time").isNull() | (index.micros("enqueued_time") < before))
            .select(*number)
            .distinct()
        )
        carried = numbered.where("known = 'open'").select(*number).distinct()
        wanted = returning.exceptAll(carried).persist(_KEPT)
        count = wanted.count()
        if not count:
            return None
        rows = _null_safe_semi(records, F.broadcast(wanted) if count <= _BROADCAST_LIMIT else wanted, number)
        return rows.withColumns(
            {"known": F.lit("earlier"), "known_since": F.lit(None).cast("string"), "doubted": F.lit(False)}
        )

    def _is_foreign(self) -> Any:
        """Tell of a tap's record whether it shows what others sent to a target, where others may."""
        stranger = (F.col("observer") == "tap") & (F.col("role") == "target") & F.col("src_seq").isNull()
        open_to_all = sources_as_targets([*self.tasks.values(), *self._sources_before()])
        other = F.lit(False)
        for one in self.tasks.values():
            sites = sorted({site for site, _ in one.sources})
            for target in one.targets:
                other = other | (
                    (F.col("task") != one.task) & (F.col("target") == target) & F.element_at("hops", -1).isin(sites)
                )
        return F.coalesce(
            stranger & (F.lower("target").isin(sorted(open_to_all)) & F.col("hops").isNull() | other),
            F.lit(False),
        )

    def _sources_before(self) -> list[TaskEvidence]:
        return [TaskEvidence(each.task, sources=set(each.sources)) for each in self._tasks_before()]

    def _marked(self, rows: DataFrame, behind: DataFrame | None) -> DataFrame:
        """Return *rows* with `watched`, and `is_behind` for arrivals after a later message."""
        watched = F.lit(False)
        for task, role, target in self._watched():
            if role == "target":
                watched = watched | ((F.col("task") == task) & (F.col("target") == target))
        marked = rows.withColumn("watched", F.coalesce(watched, F.lit(False)))
        if behind is None:
            return marked.withColumn("is_behind", F.lit(False))
        major, minor = index.arrival_order()
        view = ["task", "observer", "target", "tgt_part", "src_part", "src_seq", "major", "minor"]
        marks = behind.select(*view).distinct().withColumn("is_behind", F.lit(True))
        joined = _null_safe_join(
            marked.withColumns({"major": major, "minor": minor}), F.broadcast(marks), view, how="left"
        )
        arrival = index.is_arrival()
        return joined.withColumn("is_behind", F.coalesce("is_behind", F.lit(False)) & arrival).drop(
            "major", "minor"
        )

    # Verdicts

    def _judged(self, rows: DataFrame) -> DataFrame:
        gap = gaps(self.run.problems)
        hour = timedelta(hours=1)
        of_outcomes = _overlap(
            "entry_hours",
            {t: h | {hour_of(start_of(x) - hour) for x in h} for (t, r), h in gap.items() if r == "target"},
        )
        of_entries = _overlap(
            "outcome_hours",
            {t: h | {hour_of(start_of(x) + hour) for x in h} for (t, r), h in gap.items() if r == "source"},
        )
        there = F.lit(True)
        for task, target, since in self._silent(rows):
            blind = (
                (F.col("task") == task)
                & F.exists("due_at_tap", lambda each, name=target: each["target"] == name)
                & (F.col("last_sent") > since)
            )
            there = there & ~F.coalesce(blind, F.lit(False))
        found = states(rows).withColumns(
            {
                "gap_in_outcomes": of_outcomes | F.col("is_doubted"),
                "gap_in_entries": of_entries,
                "tap_was_there": there,
            }
        )
        spilled = self._spilled()
        if spilled is None:
            marked = found.withColumn("is_spilled", F.lit(False))
        else:
            marked = (
                found.withColumn("entity", F.lower("src_entity"))
                .join(F.broadcast(spilled), ["src_site", "entity", "message_id"], "left")
                .withColumn("is_spilled", F.coalesce("is_spilled", F.lit(False)))
                .drop("entity")
            )
        verdicts = judged(marked, self.end, self.settings).where("verdict <> 'unreadable'")
        # What only a peek saw, and nobody numbered, proves neither that it was due nor that it is lost.
        return verdicts.where(~(F.col("is_glimpse")))

    def _spilled(self) -> DataFrame | None:
        loose = self.run.load("loose", self.hours)
        if loose is None:
            return None
        return (
            loose.where("outcome = 'received' and given_up_by is not null and message_id is not null")
            .select("src_site", F.lower("given_up_by").alias("entity"), "message_id")
            .distinct()
            .withColumn("is_spilled", F.lit(True))
        )

    def _silent(self, rows: DataFrame) -> list[tuple[str, str, int]]:
        """Return the watched targets whose tap fell silent while messages were sent, and since when."""
        found = []
        for one in self.tasks.values():
            for target, seen in one.last_seen.items():
                sent = one.last_sent.get(target)
                if sent is None or sent - seen <= self.settings.clock_tolerance:
                    continue
                since = micros_of(seen)
                tail = rows.where(
                    (F.col("task") == one.task) & (F.col("target") == target) & (F.col("outcome") == "sent")
                    & (index.micros("journal_time") > since)
                ).count()  # fmt: skip
                if tail >= _TAIL:
                    found.append((one.task, target, since))
                    self.run.problems.append(
                        Problem(
                            "silent-tap",
                            one.task,
                            f"its tap at {target} wrote nothing after {seen:%H:%M:%S}, {tail} were sent",
                        )
                    )
        return found

    # Results

    def _summary(self, clean: list[dict[str, Any]], verdicts: DataFrame | None, files: int) -> Summary:
        counts: dict[str, dict[str, int]] = defaultdict(dict)
        kinds: dict[str, dict[str, int]] = defaultdict(dict)
        known: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        for row in clean:
            if row["clean"]:
                sums = {"delivered": row["sent"], "stopped": row["looped"]}
                sums |= {name: row[name] for name in ("filtered", "rejected", "expired")}
                counts[row["task"]] = {name: count for name, count in sums.items() if count}
        looked_at = 0
        if verdicts is not None:
            for row in verdicts.groupBy("task", "verdict", "is_carried", "is_reopened").count().collect():
                counts[row["task"]] = added([counts[row["task"]], {row["verdict"]: row["count"]}])
                looked_at += row["count"]
                origin = "carried" if row["is_carried"] else "reopened" if row["is_reopened"] else "entered"
                if row["verdict"] != "orphan":
                    known[row["task"]][origin] += row["count"]
            each_kind = verdicts.select("task", F.explode("findings").alias("kind")).groupBy("task", "kind").count()
            for row in each_kind.collect():
                kinds[row["task"]][row["kind"]] = row["count"]
        for row in clean:
            if row["clean"]:
                known[row["task"]]["entered"] += row["received"]
        lags = self._lags()
        tasks = [
            self._task_summary(name, counts.get(name, {}), kinds.get(name, {}), known[name], lags.get(name, {}))
            for name in sorted({*self.tasks, *counts})
        ]
        code, verdict, sentence = concluded(tasks, self.run.problems)
        settings = self.settings
        return Summary(
            run=self.run.window.run,
            start=self.run.window.start.isoformat(),
            end=self.run.window.end.isoformat(),
            exit_code=code,
            verdict=verdict,
            sentence=sentence,
            settings={
                "grace_seconds": settings.grace.total_seconds(),
                "late_after_seconds": settings.late_after.total_seconds(),
                "clock_tolerance_seconds": settings.clock_tolerance.total_seconds(),
                "open_for_seconds": settings.open_for.total_seconds(),
                "writers_stopped": settings.writers_stopped,
                "counted_until": self.end.isoformat(),
            },
            tasks=tasks,
            problems=[
                {**each._asdict(), "hours": list(each.hours)} for each in sorted(set(self.run.problems), key=str)
            ],
            notes=sorted(self.run.notes),
            inputs={
                "files": files,
                "hours": len(self.hours),
                "buckets": sum(row["buckets"] for row in clean),
                "buckets_looked_at": sum(row["buckets"] for row in clean if not row["clean"]),
                "messages_looked_at": looked_at,
            },
            previous_run=self.previous.run if self.previous else None,
            renamed=self.run.renamed,
            tables={name: f"runs/{self.run.window.run}/{name}" for name in RESULTS},
        )

    def _task_summary(
        self,
        name: str,
        verdicts: dict[str, int],
        findings: dict[str, int],
        known: dict[str, int],
        lags: dict[str, dict[int, int]],
    ) -> TaskSummary:
        one = self.tasks.get(name, TaskEvidence(name))
        order = (*FINDINGS, UNDECIDED, "delivered", *BY_DESIGN)
        return TaskSummary(
            task=name,
            sources=sorted(one.sources),
            targets=sorted(one.targets),
            evidence=one.kind,
            taps=sorted({*one.source_taps, *(tap for taps in one.target_taps.values() for tap in taps), *one.peeks}),
            first=one.first.isoformat() if one.first else None,
            last=one.last.isoformat() if one.last else None,
            verdicts={each: verdicts[each] for each in order if verdicts.get(each)},
            findings={each: findings[each] for each in order if findings.get(each)},
            entered=known["entered"],
            carried=known["carried"],
            reopened=known["reopened"],
            retries=sum(row["n"] for row in self.coverage if row["task"] == name and row["outcome"] == "retry"),
            lag_milliseconds=percentiles(_summed(lags.values()), index.class_milliseconds),
            lag_by_hour=[
                {"hour": hour, "messages": sum(classes.values()), **percentiles(classes, index.class_milliseconds)}
                for hour, classes in sorted(lags.items())
            ],
        )

    def _lags(self) -> dict[str, dict[str, dict[int, int]]]:
        """Return task → hour of arrival → class of lag → messages, by the best evidence for each target."""
        frame = self.run.load("lags", self.hours)
        found: dict[str, dict[str, dict[int, int]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(int)))
        watched = {(task, target) for task, role, target in self._watched() if role == "target"}
        for row in [] if frame is None else frame.collect():
            if (row["observer"] == "tap") == ((row["task"], row["target"]) in watched):
                found[row["task"]][row["arrived"]][row["lag_class"]] += row["n"]
        return found

    def _write(self, summary: Summary, rows: DataFrame | None, verdicts: DataFrame | None) -> Result:
        storage, name = self.run.storage, self.run.window.run
        attempt = f"{self.run.out}/runs/.attempt-{name}"
        storage.delete(attempt)
        if rows is not None and verdicts is not None:
            for table, frame in self._tables(rows, verdicts).items():
                frame.coalesce(4).write.mode("overwrite").parquet(f"{attempt}/{table}")
        counts = [(each.task, kind, count) for each in summary.tasks for kind, count in each.verdicts.items()]
        lags = [
            (each.task, hour["hour"], hour["messages"], *(hour[p] for p in ("p50", "p90", "p95", "p99", "max")))
            for each in summary.tasks
            for hour in each.lag_by_hour
        ]
        small = {
            "verdicts": (counts, "task string, verdict string, messages bigint"),
            "lags": (
                lags,
                "task string, hour string, messages bigint, p50 double, p90 double, p95 double, p99 double, max double",
            ),
        }
        for table, (values, shape) in small.items():
            self.spark.createDataFrame(values, shape).coalesce(1).write.mode("overwrite").parquet(f"{attempt}/{table}")
        storage.write(f"{attempt}/summary.json", summary.to_json())
        storage.move(attempt, f"{self.run.out}/runs/{name}")
        return Result(summary, {table: f"{self.run.out}/{path}" for table, path in summary.tables.items()})

    def _tables(self, rows: DataFrame, verdicts: DataFrame) -> dict[str, DataFrame]:
        named = verdicts.select(
            "task",
            "src_site",
            "src_entity",
            "src_part",
            "src_seq",
            F.timestamp_micros("generation").alias("enqueued_time"),
            "stray",
            "message_id",
            "order_key",
            "verdict",
            "findings",
            "copies",
            "expected",
            "altered",
            (F.col("lag") / 1000).alias("lag_milliseconds"),
            F.timestamp_micros("arrived").alias("arrived_time"),
            "arrived_at",
            "meant_for",
            F.timestamp_micros("expires").alias("expires_at"),
            "body_size",
            "given_up_by",
            F.coalesce("attempts", F.lit(1)).alias("attempts"),
            F.col("last_reason.stage").alias("last_stage"),
            F.col("last_reason.reason").alias("last_reason"),
            F.timestamp_micros("first_record").alias("first_record"),
            F.coalesce("known_since", F.lit(self.run.window.run)).alias("known_since"),
            *(F.col(name).cast("boolean") for name in ("is_carried", "is_reopened")),
        )
        at_fault = named.where(F.col("verdict").isin(*FINDINGS))
        horizon = micros_of(self.end - self.settings.open_for)
        still_open = verdicts.where(F.col("verdict").isin(*OPEN) & (F.coalesce("generation", "first_record") > horizon))
        keys = [*schema.KEY]
        kept = [*schema.compacted().names]
        of_open = _null_safe_join(
            rows.select(*keys, *(name for name in kept if name not in keys)),
            still_open.select(
                *keys,
                F.coalesce("known_since", F.lit(self.run.window.run)).alias("known_since"),
                F.col("gap_in_outcomes").alias("doubted"),
            ),
            keys,
        )
        evidence = _null_safe_semi(
            rows, verdicts.where(F.col("verdict").isin(*FINDINGS, UNDECIDED)).select(*keys), keys
        )
        return {
            "findings": at_fault.orderBy("task", "src_part", "src_seq"),
            "explained": named.where(F.col("verdict").isin(*BY_DESIGN, UNDECIDED)),
            "missing": named.where("verdict = 'missing'").orderBy("task", "src_part", "src_seq"),
            "evidence": evidence.drop("doubted", "watched", "known_since").orderBy(
                "task", "src_part", "src_seq", "journal_time"
            ),
            "open": of_open.select(*kept, "known_since", "doubted"),
        }


def _null_safe_join(left: DataFrame, right: DataFrame, keys: list[str], how: str = "inner") -> DataFrame:
    """Join on *keys*, null being equal to null."""
    renamed_right = right.withColumnsRenamed({key: f"__{key}" for key in keys})
    condition = reduce(lambda a, b: a & b, (F.col(key).eqNullSafe(F.col(f"__{key}")) for key in keys))
    return left.join(renamed_right, condition, how).drop(*(f"__{key}" for key in keys))


def _null_safe_semi(left: DataFrame, right: DataFrame, keys: list[str]) -> DataFrame:
    return _null_safe_join(left, right, keys, "left_semi")


def _overlap(column: str, hours: dict[str, set[str]]) -> Any:
    found = F.lit(False)
    for task, bad in sorted(hours.items()):
        some = F.array(*(F.lit(hour) for hour in sorted(bad)))
        found = found | ((F.col("task") == task) & F.arrays_overlap(F.col(column), some))
    return found


def _latest(task: str, names: dict[str, str]) -> str:
    seen = {task}
    while task in names and names[task] not in seen:
        task = names[task]
        seen.add(task)
    return task


def _summed(classes: Any) -> dict[int, int]:
    total: dict[int, int] = defaultdict(int)
    for each in classes:
        for lag_class, count in each.items():
            total[lag_class] += count
    return dict(total)


def _hour_in(path: str) -> str | None:
    date, found, rest = path.partition("date=")[2].partition("/hour=")
    return f"{date}T{rest[:2]}" if found else None
