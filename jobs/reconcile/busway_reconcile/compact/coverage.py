"""Coverage: which task or tap wrote how many records of an hour, and when the first and the last."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.journal import schema
from busway_reconcile.journal.columns import is_unnumbered, micros, needs_match
from busway_reconcile.journal.problems import Problem

KEYS = ("task", "src_site", "src_entity", "src_part", "role", "observer", "tap", "target", "peek", "outcome")

_COUNTS = ("n", "unnumbered", "unmatched", "given_up")

MINUTE = 60_000_000
"""A minute in microseconds."""

FINISHING = ("sent", *schema.WITHHELD)
"""The outcomes by which a task finished a message."""

COVERAGE = (*KEYS, *_COUNTS, "handed_over", "first", "last", "last_enqueued", "finished")
"""
The fields of a row of coverage.

`unnumbered` counts the records without a number of their source, `unmatched` those of taps that may be matched to one,
`given_up` those of messages that a queue dead-lettered; `handed_over` says whether a host was asked to send any;
`first` and `last` are the times of the first and the last record, `last_enqueued` is when the last of the messages was
enqueued, `finished` has the first and the last time in each minute in which the task finished messages: all in
microseconds since 1970.
"""


Coverage = dict[str, list[dict[str, Any]]]
"""Rows of COVERAGE by hour."""


class Written(NamedTuple):
    """The number of records that were written, their coverage, and the problems of the files that they are from."""

    records: int
    coverage: Coverage
    problems: Sequence[Problem]


def coverage(records: DataFrame) -> Coverage:
    """Return the rows of coverage of compacted *records* by hour: as many as tasks, targets and outcomes."""
    at = micros("journal_time")
    is_finished = F.col("outcome").isin(*FINISHING) & (F.col("observer") == "task")
    by_minute = records.groupBy("landed", *KEYS, F.when(is_finished, F.floor(at / MINUTE)).alias("minute")).agg(
        F.count("*").alias("n"),
        F.count_if(is_unnumbered()).alias("unnumbered"),
        F.count_if(needs_match()).alias("unmatched"),
        F.count_if(F.col("given_up_by").isNotNull()).alias("given_up"),
        F.max(F.coalesce(F.col("handed_over"), F.lit(False))).alias("handed_over"),
        F.min(at).alias("first"),
        F.max(at).alias("last"),
        F.max(micros("enqueued_time")).alias("last_enqueued"),
    )
    times = F.when(F.col("minute").isNotNull(), F.array_distinct(F.array("first", "last")))
    grouped = by_minute.groupBy("landed", *KEYS).agg(
        *(F.sum(name).alias(name) for name in _COUNTS),
        F.max("handed_over").alias("handed_over"),
        F.array_sort(F.flatten(F.collect_list(times))).alias("finished"),
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.max("last_enqueued").alias("last_enqueued"),
    )
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in grouped.collect():
        found[row["landed"]].append(row.asDict())
    return {hour: merged_coverage(rows) for hour, rows in found.items()}


def merged_coverage(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return *rows* of one hour in order, those with the same keys as one."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[name] for name in KEYS)
        known = found.get(key)
        found[key] = {
            name: row[name] if known is None or name in KEYS else _MERGED[name](known[name], row[name])
            for name in COVERAGE
        }
    return [found[key] for key in sorted(found, key=lambda key: [str(each) for each in key])]


def _ends_of_minutes(times: Iterable[int]) -> list[int]:
    """Return the first and the last of *times* in each minute."""
    found: dict[int, tuple[int, int]] = {}
    for each in times:
        first, last = found.get(each // MINUTE, (each, each))
        found[each // MINUTE] = min(first, each), max(last, each)
    return sorted({end for ends in found.values() for end in ends})


_MERGED: Mapping[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(_COUNTS, lambda one, other: one + other),
    "handed_over": lambda one, other: one or other,
    "first": min,
    "last": max,
    "last_enqueued": lambda one, other: max((each for each in (one, other) if each is not None), default=None),
    "finished": lambda one, other: _ends_of_minutes([*one, *other]),
}


def total(rows: Iterable[dict[str, Any]], name: str) -> int:
    """Return the sum of the count *name* over *rows* of coverage."""
    return sum(row[name] for row in rows)
