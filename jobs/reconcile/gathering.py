"""The evidence that a run looks at message by message: this window's, what was left open, and earlier copies."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile import index, schema
from jobs.reconcile.evidence import TaskEvidence, sharing, sources_as_targets, watched
from jobs.reconcile.inputs import hour_of
from jobs.reconcile.joins import join_null_safe, semi_join_null_safe
from jobs.reconcile.placement import placed, unplaced
from jobs.reconcile.run import Run
from jobs.reconcile.states import keyed
from jobs.reconcile.summary import Summary
from jobs.reconcile.suspects import across_hours, behind_earlier, compared, micros_of, rows_of
from jobs.reconcile.watches import Watch

KEPT = StorageLevel.MEMORY_AND_DISK

_BROADCAST_LIMIT = 1_000_000  # rows of a few numbers
_NUMBER = ("task", "src_site", "src_entity", "src_part", "src_seq")


class Gathering:
    """The evidence of one run; `buckets` and `rows` are None where there is none."""

    def __init__(
        self,
        run: Run,
        hours: list[str],
        earlier: list[str],
        tasks: dict[str, TaskEvidence],
        *,
        watches: Mapping[str, Mapping[str, Watch]],
        previous: Summary | None,
    ) -> None:
        """Compare the buckets of *hours*; *earlier* hours are compacted too. *watches* are by task and target."""
        self._run, self._hours, self._tasks, self._previous = run, hours, tasks, previous
        self._watches, self._sharing = watches, sharing(tasks)
        self._tolerance = run.settings.clock_tolerance
        self._kept: list[DataFrame] = []
        self.buckets: DataFrame | None = None
        self.suspects: DataFrame | None = None
        self._tapped = run.spark.createDataFrame(watched(tasks), "task string, role string, target string")
        self._clean_messages: DataFrame | None = None
        digests = run.load("digests", hours)
        if digests is not None:
            self.buckets = self._keep(compared(digests, self._tapped, run.window.start, run.settings))
        self.least_lags, first = self._extremes()
        self._earlier = self._those_since(first, earlier)

    def rows(self) -> DataFrame | None:
        """Return all records of the messages that have to be looked at: keyed, `watched`, `is_behind`, `known`."""
        behind = self._of_one_task(self._behind())
        parts = [self._of_window(part) for part in self._window_parts(behind)]
        opened = self._open_before()
        if opened is not None:
            parts.append(opened)
        if not parts:
            return None
        found = reduce(DataFrame.unionByName, parts)
        if self._earlier:
            known = self._known_earlier(found)
            found = found if known is None else found.unionByName(known)
        found = self._without_others(found)
        loose = [frame for frame in (self._run.load("loose", self._hours), opened) if frame is not None]
        if any(not frame.where(unplaced()).isEmpty() for frame in loose):
            found = placed(found)
        return self._keep(self._marked(keyed(found), behind))

    def counts(self) -> list[dict[str, Any]]:
        """Return per task the sums of the buckets that need no look at their messages, and how many those are."""
        if self.buckets is None:
            return []
        clean = self.buckets.where("clean")
        if self.suspects is not None:
            clean = join_null_safe(clean, self.suspects, index.BUCKET, "left_anti")
        sums = [F.sum(name).alias(name) for name in ("received", "sent", *schema.WITHHELD)]
        counted = [clean.groupBy("task").agg(F.count("*").alias("buckets"), *sums)]
        if self._clean_messages is not None:
            counted.append(self._clean_messages.groupBy("task").agg(F.lit(0).alias("buckets"), *sums))
        return [row.asDict() for frame in counted for row in frame.collect()]

    def close(self) -> None:
        """Let go of what was kept in memory."""
        for frame in self._kept:
            frame.unpersist()

    def _keep(self, frame: DataFrame) -> DataFrame:
        self._kept.append(frame.persist(KEPT))
        return frame

    # Buckets

    def _extremes(self) -> tuple[dict[str, int], int | None]:
        if self.buckets is None:
            return {}, None
        rows = (
            self.buckets.groupBy("task")
            .agg(F.min("least_lag").alias("lag"), F.min("first_enqueued").alias("first"))
            .collect()
        )
        firsts = [row["first"] for row in rows if row["first"] is not None]
        return {row["task"]: row["lag"] for row in rows if row["lag"] is not None}, min(firsts, default=None)

    def _those_since(self, first: int | None, earlier: list[str]) -> list[str]:
        """Return those of *earlier* that may hold evidence on messages enqueued at *first* or later."""
        start = self._run.window.start
        # A record that was written apart from its message's entry is of the hour before at most.
        since = start - timedelta(hours=1)
        if first is not None:
            since = min(since, datetime.fromtimestamp(first / 1_000_000, UTC) - self._tolerance)
        return [hour for hour in earlier if hour >= hour_of(max(since, start - self._run.settings.open_for))]

    def _window_parts(self, behind: DataFrame | None) -> list[DataFrame]:
        records = self._run.load("records", self._hours)
        loose = self._run.load("loose", self._hours)
        parts = []
        if records is not None and self.buckets is not None:
            suspects = self.buckets.where("not clean").select(*index.BUCKET)
            if behind is not None:
                suspects = suspects.unionByName(behind.select(*_NUMBER[:4], index.block().alias("block")))
            if loose is not None:
                near = loose.where("src_seq is not null and src_part is null").select(
                    *_NUMBER[:3], index.block().alias("block")
                )
                suspects = suspects.unionByName(
                    self.buckets.select(*index.BUCKET).join(near, near.columns, "left_semi")
                )
            self.suspects = self._keep(suspects.distinct())
            count = self.suspects.count()
            if count:
                near = self._keep(rows_of(records, self.suspects, broadcast=count <= _BROADCAST_LIMIT))
                parts.append(self._of_messages(near, behind, loose))
        if loose is not None:
            parts.append(loose.where(index.unnumbered()).where(~self._is_foreign()))
        return parts

    def _of_messages(self, near: DataFrame, behind: DataFrame | None, loose: DataFrame | None) -> DataFrame:
        """Return the records, of those *near* what differs, whose message is no clean bucket by itself."""
        run = self._run
        numbered = index.digests(near, 1)
        singles = self._keep(
            compared(numbered, self._tapped, run.window.start, run.settings).withColumnRenamed("block", "src_seq")
        )
        wanted = singles.where("not clean").select(*_NUMBER)
        if behind is not None:
            wanted = wanted.unionByName(behind.select(*_NUMBER))
        if loose is not None:
            place = ["task", "src_site", "src_entity", "src_seq"]
            without_part = loose.where("src_seq is not null and src_part is null").select(*place)
            wanted = wanted.unionByName(singles.select(*_NUMBER).join(without_part, place, "left_semi"))
        wanted = self._keep(wanted.distinct())
        few = F.broadcast(wanted) if wanted.count() <= _BROADCAST_LIMIT else wanted
        self._clean_messages = join_null_safe(singles.where("clean"), few, _NUMBER, "left_anti")
        return semi_join_null_safe(near, few, _NUMBER)

    # Order

    def _behind(self) -> DataFrame | None:
        """Return the arrivals that came after a later message of their order key."""
        within = self._run.load("behind", self._hours)
        sessions = self._run.load("sessions", [*self._earlier, *self._hours])
        records = self._run.load("records", self._hours)
        if sessions is None or records is None:
            return within
        across = self._keep(across_hours(sessions).where(F.col("landed").isin(self._hours)))
        if across.isEmpty():
            return within
        # By the key alone first, which leaves few.
        keys = F.broadcast(across.select("order_key").distinct())
        near = index.ordered_arrivals(records).join(keys, "order_key", "left_semi")
        late = behind_earlier(
            join_null_safe(near, F.broadcast(across), ("landed", *index.SESSION))
            .where("src_seq < highest_earlier")
            .drop("highest_earlier"),
            sessions,
        )
        found = late if within is None else within.select(*late.columns).unionByName(late)
        return self._keep(found.distinct())

    def _marked(self, rows: DataFrame, behind: DataFrame | None) -> DataFrame:
        """Return *rows* with `watched`, and `is_behind` for arrivals after a later message."""
        is_watched = F.lit(False)
        for task, role, target in watched(self._tasks):
            if role == "target":
                is_watched = is_watched | ((F.col("task") == task) & (F.col("target") == target))
        # What a tap was to tell of it tells when it is back.
        for task, target in ((task, target) for task, by_target in self._watches.items() for target in by_target):
            waiting = (F.col("known") == "open") & (F.col("task") == task) & (F.col("target") == target)
            is_watched = is_watched | waiting
        marked = rows.withColumn("watched", F.coalesce(is_watched & F.col("joined").isNull(), F.lit(False)))
        if behind is None:
            return marked.withColumn("is_behind", F.lit(False))
        major, minor = index.arrival_order()
        view = ("task", "observer", "target", "tgt_part", "src_part", "src_seq", "major", "minor")
        marks = behind.select(*view).distinct().withColumn("is_behind", F.lit(True))
        ordered = marked.withColumns({"major": major, "minor": minor})
        joined = join_null_safe(ordered, F.broadcast(marks), view, "left").drop("major", "minor")
        return joined.withColumn("is_behind", F.coalesce("is_behind", F.lit(False)) & index.is_arrival())

    # Targets that several tasks of one site send to: a copy's stamps tell its site and number, not which task's it is

    def _of_one_task(self, behind: DataFrame | None) -> DataFrame | None:
        """Return those of *behind* whose order is that of one entity: a tap sees copies of others among them."""
        if behind is None:
            return None
        mixed = F.lit(False)
        for task, target, _ in self._sharing:
            mixed = mixed | ((F.col("task") == task) & (F.col("target") == target))
        return behind.where((F.col("observer") == "task") | ~mixed)

    def _without_others(self, found: DataFrame) -> DataFrame:
        """Return *found* without the copies that a tap takes for its task's, and that another task received."""
        records = self._run.load("records", [*self._earlier, *self._hours]) if self._sharing else None
        if records is None:
            return found
        received = F.col("outcome") == "received"
        names = ("task", "src_site", "src_seq", "enqueued_time")
        theirs = records.where(received).select(*names).withColumnRenamed("task", "other").distinct()
        feeds = self._run.spark.createDataFrame(self._sharing, "task string, target string, other string")
        own = found.where(received).select(*names)
        foreign = theirs.join(F.broadcast(feeds), "other").join(own, list(names), "left_anti")
        keys = (*names, "target")
        renamed = foreign.select(*(F.col(name).alias(f"their_{name}") for name in keys))
        same = (F.col("observer") == "tap") & (F.col("role") == "target")
        for name in keys:
            same = same & (F.col(name) == F.col(f"their_{name}"))
        return found.join(renamed, same, "left_anti")

    # Other runs

    def _of_window(self, part: DataFrame) -> DataFrame:
        return _with_origin(part, "window")

    def _open_before(self) -> DataFrame | None:
        if self._previous is None:
            return None
        path = f"{self._run.out}/runs/{self._previous.run}/open"
        if not self._run.storage.exists(path):
            return None
        # The run before may have known fewer fields.
        fields = schema.compacted().add("known_since", "string").add("doubted", "boolean")
        kept = self._run.spark.read.schema(fields).parquet(path)
        opened = self._run.under_new_names(kept).withColumn("known", F.lit("open"))
        again = self._run.load("records", self._run.changed_before)
        if again is None:
            return opened
        # What came too late for its own run may tell what became of these.
        keys = opened.where("src_seq is not null").select(*_NUMBER, "enqueued_time").distinct()
        timed = semi_join_null_safe(again, keys, (*_NUMBER, "enqueued_time"))
        untimed = semi_join_null_safe(again.where("enqueued_time is null"), keys, _NUMBER)
        new = join_null_safe(timed.unionByName(untimed), opened, ("landed", *schema.IDENTITY), "left_anti")
        return opened.unionByName(_with_origin(new, "open").select(*opened.columns))

    def _known_earlier(self, found: DataFrame) -> DataFrame | None:
        """Return the earlier evidence on messages that an earlier run may have decided: they may be copied twice."""
        records = self._run.load("records", self._earlier)
        if records is None:
            return None
        before = micros_of(self._run.window.start + self._tolerance)
        numbered = found.where("src_seq is not null")
        # One that was enqueued since cannot have left a trace before.
        old = F.col("enqueued_time").isNull() | (index.micros("enqueued_time") < before)
        returning = numbered.where((F.col("known") == "window") & old).select(*_NUMBER).distinct()
        carried = numbered.where("known = 'open'").select(*_NUMBER).distinct()
        wanted = self._keep(returning.exceptAll(carried))
        count = wanted.count()
        if not count:
            return None
        few = F.broadcast(wanted) if count <= _BROADCAST_LIMIT else wanted
        return _with_origin(semi_join_null_safe(records, few, _NUMBER), "earlier")

    def _is_foreign(self) -> Column:
        """Tell of a record whether a tap saw at a target what others may send there: applications or other tasks."""
        stranger = (F.col("observer") == "tap") & (F.col("role") == "target") & F.col("src_seq").isNull()
        before = [] if self._previous is None else self._previous.tasks
        known = [*self._tasks.values(), *(TaskEvidence(each.task, sources=set(each.sources)) for each in before)]
        applications = F.lower("target").isin(sorted(sources_as_targets(known))) & F.col("hops").isNull()
        other = F.lit(False)
        for one in self._tasks.values():
            sites = sorted({site for site, _ in one.sources})
            for target in sorted(one.targets):
                from_there = (F.col("target") == target) & F.element_at("hops", -1).isin(sites)
                other = other | ((F.col("task") != one.task) & from_there)
        return F.coalesce(stranger & (applications | other), F.lit(False))


def _with_origin(frame: DataFrame, known: str) -> DataFrame:
    return frame.withColumns(
        {"known": F.lit(known), "known_since": F.lit(None).cast("string"), "doubted": F.lit(False)}
    )
