"""The job runs on Spark 3.5: it uses no newer function of PySpark, although a newer version is installed here."""

import ast
import re
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import Column, DataFrame, DataFrameReader, DataFrameWriter, SparkSession, Window, WindowSpec, functions
from pyspark.sql.group import GroupedData


def imports_spark(path: Path) -> bool:
    """Return whether *path* uses Spark: other packages have methods of the same names."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        if any(name.split(".")[0] == "pyspark" for name in names):
            return True
    return False


pytestmark = pytest.mark.skipif(
    pyspark.__version__.startswith("3."), reason="every other test shows it, with a Spark as old as this"
)

FILES = sorted((Path(__file__).parents[2] / "jobs" / "reconcile").rglob("*.py"))
JOB = [path for path in FILES if imports_spark(path)]
NEWEST = (3, 5)
# A method of busway_reconcile.storage has the name of one that Spark 4 gave its frames.
OUR_OWN = {"DataFrame.exists"}
OWNERS = (Column, DataFrame, DataFrameReader, DataFrameWriter, GroupedData, SparkSession, Window, WindowSpec)


def added_in(thing: object) -> tuple[int, int] | None:
    found = re.search(r"versionadded::\s*(\d+)\.(\d+)", thing.__doc__ or "")
    return (int(found[1]), int(found[2])) if found else None


def names(path: Path) -> tuple[set[str], set[str]]:
    """Return the names that *path* uses from pyspark.sql.functions, and all its other attributes."""
    asked: set[str] = set()
    attributes: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            is_function = isinstance(node.value, ast.Name) and node.value.id == "F"
            (asked if is_function else attributes).add(node.attr)
    return asked, attributes


def newer_attributes(attributes: set[str]) -> set[str]:
    """Return the *attributes* that only newer versions of Spark have: the source does not show the object's type."""
    newer = set()
    for name in attributes:
        added = [(owner, added_in(getattr(owner, name)) or (0, 0)) for owner in OWNERS if hasattr(owner, name)]
        if added and all(version > NEWEST for _, version in added):
            newer |= {f"{owner.__name__}.{name}" for owner, _ in added}
    return newer


@pytest.mark.parametrize("path", JOB, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_function_is_of_spark_3_5_or_older(path: Path) -> None:
    asked, attributes = names(path)
    newer = {name for name in asked if (added_in(getattr(functions, name)) or (0, 0)) > NEWEST}
    assert newer | (newer_attributes(attributes) - OUR_OWN) == set()


def test_the_check_knows_what_is_new() -> None:
    added = added_in(functions.try_to_date)
    assert added is not None
    assert added > NEWEST
    assert added_in(functions.xxhash64) == (3, 0)
    assert newer_attributes({"transpose", "withColumns", "transform", "no_such_thing"}) == {"DataFrame.transpose"}
    assert {"verdicts", "tables", "page"} <= {path.stem for path in JOB}
    assert "lag_chart" not in {path.stem for path in JOB}
