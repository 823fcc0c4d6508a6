"""Frames of a few rows that the driver has."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
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
