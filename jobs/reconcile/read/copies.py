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
    found = _full_copies(spark, alike) if alike else {}
    found |= _partial_copies(spark, [each for each in files if each.file.path not in found], among)
    return {each.file.path: found[each.file.path] for each in files if each.file.path in found}


def _partial_copies(
    spark: SparkSession, files: Sequence[JournalFile], among: Sequence[JournalFile]
) -> dict[str, JournalFile]:
    """Return those *files* in an hour that their name does not have whose content is the beginning of another file."""
    found = {}
    for one in files:
        # A writer names a file after the hour in which it makes it: a file elsewhere was moved or copied.
        if one.hour == one.made_in or not one.file.size:
            continue
        longer = {
            each.file.path: each
            for each in among
            if (each.task, each.role) == (one.task, one.role) and each.file.size > one.file.size
        }
        if not longer:
            continue
        read = spark.read.format("binaryFile").load([one.file.path, *longer])
        beginning = F.sha2(F.substring("content", 1, one.file.size), 256)
        sums = {
            row["path"]: row["sum"]
            for row in read.select(decoded("path").alias("path"), beginning.alias("sum")).collect()
        }
        same = [path for path in sorted(longer) if sums[path] == sums[one.file.path]]
        if same:
            found[one.file.path] = longer[same[0]]
    return found


def _full_copies(spark: SparkSession, alike: Mapping[str, JournalFile]) -> dict[str, JournalFile]:
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
    return found


def copy_problems(files: Sequence[JournalFile], originals: Mapping[str, JournalFile]) -> list[Problem]:
    """Return a problem for each of *files* that find_copies() found; a copy makes no hour unreliable."""
    return [
        Problem("duplicated-file", each.file.path, _text(each, original), each.task, each.role)
        for each in files
        if (original := originals.get(each.file.path)) is not None
    ]


def _text(copy: JournalFile, original: JournalFile) -> str:
    what = "a copy" if copy.file.size == original.file.size else "a partial copy"
    return f"{what} of {original.state.path}; read once"
