"""Frames and tables that the driver has, and joins in which null equals null: a missing partition is a value too."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses


def frame_of(spark: SparkSession, rows: Iterable[Sequence[Any]], shape: str) -> DataFrame:
    """
    Return *rows* as a frame of one partition.

    It is made in Java: for a list, createDataFrame starts processes of Python. Shape: DDL, without times.
    """
    names = [field.split(" ")[0] for field in shape.split(", ")]
    text = json.dumps([dict(zip(names, row, strict=True)) for row in rows])
    one = spark.range(0, 1, 1, 1)
    return one.select(F.inline(F.from_json(F.lit(text), f"array<struct<{shape}>>")))


def looked_up(key: str, values: Mapping[str, Any], shape: str) -> Column:
    """
    Return what *values* have for the column *key*, null if they lack it.

    It is one expression: a condition for each of a thousand tasks overflows Java's stack. Shape: DDL of one value.
    """
    return F.from_json(F.lit(json.dumps(values)), f"map<string,{shape}>")[F.col(key)]


def join_null_safe(left: DataFrame, right: DataFrame, keys: Sequence[str], how: str = "inner") -> DataFrame:
    """Return *left* joined with *right* on *keys*."""
    renamed = right.withColumnsRenamed({key: f"right_{key}" for key in keys})
    same = reduce(lambda one, other: one & other, (F.col(key).eqNullSafe(F.col(f"right_{key}")) for key in keys))
    return left.join(renamed, same, how).drop(*(f"right_{key}" for key in keys))


def semi_join_null_safe(left: DataFrame, right: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the rows of *left* whose *keys* are in *right*."""
    return join_null_safe(left, right, keys, "left_semi")
