"""Coverage: which task or tap wrote how many records of an hour, and when the first and the last."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile.journal.columns import is_unnumbered, micros, needs_match

KEYS = ("task", "src_site", "src_entity", "src_part", "role", "observer", "tap", "target", "peek", "outcome")

_COUNTS = ("n", "unnumbered", "unmatched", "given_up")

COVERAGE = (*KEYS, *_COUNTS, "handed_over", "first", "last")
"""
The fields of a row of coverage.

`unnumbered` counts the records without a number of their source, `unmatched` those of taps that may be matched to one,
`given_up` those of messages that a queue dead-lettered; `handed_over` says whether a host was asked to send any;
`first` and `last` are microseconds since 1970.
"""

_MERGED: Mapping[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(_COUNTS, lambda one, other: one + other),
    "handed_over": lambda one, other: one or other,
    "first": min,
    "last": max,
}


def coverage(records: DataFrame) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of coverage of compacted *records* by hour: as many as tasks, targets and outcomes."""
    counts = {
        "n": F.count("*"),
        "unnumbered": F.count_if(is_unnumbered()),
        "unmatched": F.count_if(needs_match()),
        "given_up": F.count_if(F.col("given_up_by").isNotNull()),
        "handed_over": F.max(F.coalesce(F.col("handed_over"), F.lit(False))),
        "first": F.min(micros("journal_time")),
        "last": F.max(micros("journal_time")),
    }
    grouped = records.groupBy("landed", *KEYS).agg(*(column.alias(name) for name, column in counts.items()))
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


def total(rows: Iterable[dict[str, Any]], name: str) -> int:
    """Return the sum of the count *name* over *rows* of coverage."""
    return sum(row[name] for row in rows)
