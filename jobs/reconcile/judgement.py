"""The verdicts of a run: the states of its messages, seen in the light of what is wrong with the evidence."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile.evidence import gaps
from jobs.reconcile.index import micros
from jobs.reconcile.inputs import Problem, hour_of, start_of
from jobs.reconcile.run import Run
from jobs.reconcile.states import states
from jobs.reconcile.suspects import micros_of
from jobs.reconcile.verdicts import judged
from jobs.reconcile.watches import TAIL, Watch

_HOUR = timedelta(hours=1)


def judge(
    run: Run, hours: list[str], watches: Mapping[str, Mapping[str, Watch]], rows: DataFrame, end: datetime
) -> DataFrame:
    """
    Return one row with its verdict for each message of *rows*; names taps that fell silent.

    Shape:   *watches* by task and target; out with `is_before_tap` beside what judged() returns.
    """
    bad: dict[str, dict[str, set[str]]] = {"source": {}, "target": {}}
    for (task, role), torn in gaps(run.problems).items():
        # The two records of a message may lie on both sides of the hour.
        away = -_HOUR if role == "target" else _HOUR
        bad[role][task] = torn | {hour_of(start_of(hour) + away) for hour in torn}
    is_before, is_after = F.lit(False), F.lit(False)
    for task, target, watch in _each(watches):
        due = (F.col("task") == task) & F.exists("due_at_tap", _is_at(target))
        is_before = is_before | (due & (F.col("last_sent") < micros_of(watch.since)))
        if watch.until is not None:
            is_after = is_after | (due & (F.col("last_sent") > micros_of(watch.until)))
    _name_silent(run, watches, rows, end)
    found = states(rows).withColumns(
        {
            "gap_in_outcomes": _any_of("entry_hours", bad["target"]) | F.col("is_doubted"),
            "gap_in_entries": _any_of("outcome_hours", bad["source"]),
            "is_before_tap": F.coalesce(is_before, F.lit(False)),
            "is_after_tap": F.coalesce(is_after, F.lit(False)),
            "entity": F.lower("src_entity"),
        }
    )
    spilled = _given_up(run, hours)
    if spilled is None:
        marked = found.withColumn("is_spilled", F.lit(False))
    else:
        named = found.join(F.broadcast(spilled), ["src_site", "entity", "message_id"], "left")
        # Ids may repeat: of several messages with one, so many are spilled as were, those that were tried most often.
        of_id = Window.partitionBy(
            "task", "src_site", "entity", "message_id", F.when(F.col("spilled").isNull(), F.col("src_seq"))
        ).orderBy(
            F.size("sent_parts") + F.col("seen_watched") + F.col("seen_unwatched") > 0,
            F.col("attempts").desc_nulls_last(),
            "src_part",
            "src_seq",
            "generation",
        )
        marked = named.withColumn(
            "is_spilled", F.coalesce(F.row_number().over(of_id) <= F.col("spilled"), F.lit(False))
        )
    # An unreadable message is counted by its outcome; what a peek saw and nobody numbered proves nothing.
    return judged(marked, end, run.settings).where("verdict <> 'unreadable' and not is_glimpse")


def _is_at(target: str) -> Callable[[Column], Column]:
    return lambda place: place["target"] == target


def _given_up(run: Run, hours: list[str]) -> DataFrame | None:
    """Return the ids of the messages that the tasks of dead-letter queues have received, and of how many each is."""
    loose = run.load("loose", hours)
    if loose is None:
        return None
    return (
        loose.where("outcome = 'received' and given_up_by is not null and message_id is not null")
        .groupBy("src_site", F.lower("given_up_by").alias("entity"), "message_id")
        .agg(F.countDistinct("src_entity", "src_seq", "enqueued_time").alias("spilled"))
    )


def _each(watches: Mapping[str, Mapping[str, Watch]]) -> Iterator[tuple[str, str, Watch]]:
    for task, by_target in sorted(watches.items()):
        for target, watch in sorted(by_target.items()):
            yield task, target, watch


def _name_silent(run: Run, watches: Mapping[str, Mapping[str, Watch]], rows: DataFrame, end: datetime) -> None:
    """Name the taps that wrote nothing more while messages were sent that they should have seen by *end*."""
    settled = F.lit(micros_of(end - run.settings.grace))
    for task, target, watch in _each(watches):
        if watch.until is None or watch.is_absent:
            continue
        sent_there = (F.col("task") == task) & (F.col("target") == target) & (F.col("outcome") == "sent")
        missed = rows.where(sent_there & micros("journal_time").between(micros_of(watch.last), settled)).count()
        if missed >= TAIL:
            text = (
                f"its tap at {target} wrote nothing after {watch.last:%Y-%m-%d %H:%M:%S}; "
                f"{missed} were sent there since"
            )
            run.problems.append(Problem("silent-tap", task, text))


def _any_of(column: str, hours: Mapping[str, set[str]]) -> Column:
    found = F.lit(False)
    for task, bad in sorted(hours.items()):
        some = F.array(*(F.lit(hour) for hour in sorted(bad)))
        found = found | ((F.col("task") == task) & F.arrays_overlap(F.col(column), some))
    return found
