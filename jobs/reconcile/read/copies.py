"""Raw files whose content is a copy of another file, under another name."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from jobs.reconcile.journal.problems import Problem
from jobs.reconcile.read.files import JournalFile
from jobs.reconcile.read.lines import decoded


def find_copies(
    spark: SparkSession, files: Sequence[JournalFile], among: Sequence[JournalFile]
) -> dict[str, JournalFile]:
    """Return the paths of those *files* that are copies of another file in *among*, each with its original."""
    by_size: dict[tuple[str, str, int], list[JournalFile]] = defaultdict(list)
    for each in among:
        by_size[each.task, each.role, each.file.size].append(each)
    wanted = {(each.task, each.role, each.file.size) for each in files if each.file.size}
    alike = {each.file.path: each for key in wanted if len(by_size[key]) > 1 for each in by_size[key]}
    if not alike:
        return {}
    contents: dict[tuple[str, str, str], list[JournalFile]] = defaultdict(list)
    read = spark.read.format("binaryFile").load(list(alike))
    for row in read.select(decoded("path").alias("path"), F.sha2("content", 256).alias("sum")).collect():
        one = alike[row["path"]]
        contents[one.task, one.role, row["sum"]].append(one)
    found: dict[str, JournalFile] = {}
    for same in contents.values():
        # The original is in the hour that its name contains.
        original = min(same, key=lambda each: (each.hour != each.made_in, len(each.name), each.file.path))
        found |= {each.file.path: original for each in same if each is not original}
    return {each.file.path: found[each.file.path] for each in files if each.file.path in found}


def copy_problems(files: Sequence[JournalFile], originals: Mapping[str, JournalFile]) -> list[Problem]:
    """Return a problem for each of *files* that find_copies() found; a copy makes no hour unreliable."""
    return [
        Problem("duplicated-file", each.file.path, f"a copy of {original.state.path}; read once", each.task, each.role)
        for each in files
        if (original := originals.get(each.file.path)) is not None
    ]
