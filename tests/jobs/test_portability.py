"""The job runs on Spark 3.5: nothing that PySpark says is newer may be used, although a newer one is installed here."""

import ast
import re
from pathlib import Path

import pytest
from pyspark.sql import Column, DataFrame, DataFrameReader, DataFrameWriter, SparkSession, Window, WindowSpec, functions
from pyspark.sql.group import GroupedData

JOB = sorted((Path(__file__).parents[2] / "jobs" / "reconcile").glob("*.py"))
NEWEST = (3, 5)
# A method of jobs.reconcile.storage has the name of one that Spark 4 gave its frames.
OUR_OWN = {"DataFrame.exists"}
OWNERS = (Column, DataFrame, DataFrameReader, DataFrameWriter, GroupedData, SparkSession, Window, WindowSpec)


def added_in(thing) -> tuple[int, int] | None:
    found = re.search(r"versionadded::\s*(\d+)\.(\d+)", thing.__doc__ or "")
    return (int(found[1]), int(found[2])) if found else None


def names(path: Path) -> tuple[set[str], set[str]]:
    """Return the functions of pyspark.sql.functions that *path* names, and all other attributes."""
    asked: set[str] = set()
    attributes: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            is_function = isinstance(node.value, ast.Name) and node.value.id == "F"
            (asked if is_function else attributes).add(node.attr)
    return asked, attributes


@pytest.mark.parametrize("path", JOB, ids=lambda path: path.stem)
def test_every_function_is_of_spark_3_5_or_older(path):
    asked, attributes = names(path)
    newer = {name for name in asked if (added_in(getattr(functions, name)) or (0, 0)) > NEWEST}
    for owner in OWNERS:
        newer |= {
            f"{owner.__name__}.{name}"
            for name in attributes
            if hasattr(owner, name) and (added_in(getattr(owner, name)) or (0, 0)) > NEWEST
        }
    newer -= OUR_OWN
    assert newer == set()


def test_the_check_knows_what_is_new():
    assert (added_in(functions.try_to_date) or (0, 0)) > NEWEST
    assert added_in(functions.xxhash64) == (3, 0)
