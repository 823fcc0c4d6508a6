"""Joins in which null equals null, as in grouping: a missing partition is a value too."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses


def join_null_safe(left: DataFrame, right: DataFrame, keys: Sequence[str], how: str = "inner") -> DataFrame:
    """Return *left* joined with *right* on *keys*."""
    renamed = right.withColumnsRenamed({key: f"right_{key}" for key in keys})
    same = reduce(lambda one, other: one & other, (F.col(key).eqNullSafe(F.col(f"right_{key}")) for key in keys))
    return left.join(renamed, same, how).drop(*(f"right_{key}" for key in keys))


def semi_join_null_safe(left: DataFrame, right: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the rows of *left* whose *keys* are in *right*."""
    return join_null_safe(left, right, keys, "left_semi")
