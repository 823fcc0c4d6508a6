"""Joins in which null is equal to null, as it is for grouping: a partition that nobody told is one too."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses


def join_null_safe(left: DataFrame, right: DataFrame, keys: Sequence[str], how: str = "inner") -> DataFrame:
    """Return *left* joined with *right* on *keys*."""
    theirs = right.withColumnsRenamed({key: f"their_{key}" for key in keys})
    same = reduce(lambda one, other: one & other, (F.col(key).eqNullSafe(F.col(f"their_{key}")) for key in keys))
    return left.join(theirs, same, how).drop(*(f"their_{key}" for key in keys))


def semi_join_null_safe(left: DataFrame, right: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return those rows of *left* that have an equal in *right*."""
    return join_null_safe(left, right, keys, "left_semi")
