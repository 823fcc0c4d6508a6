"""Raw journals as records: gzip members of JSON lines, whatever state they are in."""

import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import StringType, StructField, StructType

from jobs.reconcile import schema
from jobs.reconcile.inputs import EMPTY, JournalFile, Problem

if TYPE_CHECKING:
    import pyarrow as pa

_CORRUPT = "not_json"
_TIMES = (0, 253_402_214_400_000_000)  # microseconds, from 1970 to the last day of 9999
_PIECE = 1 << 14
_GZIP = 31  # zlib's way to say: with the header and the sum of a gzip member


class Lines(NamedTuple):
    """The lines of some files with the path of each, how many there are, and the files that are torn."""

    frame: DataFrame
    counts: dict[str, int]
    problems: list[Problem]


def read_lines(spark: SparkSession, files: Sequence[JournalFile]) -> Lines:
    """Read *files*; of one that is torn, the lines of its whole members."""
    paths = {each.file.path: each for each in files if each.file.size}
    empty = [_problem(EMPTY, each, "made, and nothing written to it") for each in files if not each.file.size]
    if not paths:
        return Lines(spark.createDataFrame([], "value string, path string"), {}, empty)
    try:
        frame = _text(spark, list(paths))
        return Lines(frame, _counted(frame), empty)
    except (PySparkException, Py4JJavaError):  # 4.x and 3.5 wrap the failure of a task differently
        torn = {
            row["path"]: row["trouble"]
            for row in _members(spark, list(paths), with_lines=False).select("path", "trouble").collect()
        }
        if not torn:
            raise
    whole = [path for path in paths if path not in torn]
    frame = _members(spark, list(torn)).where("trouble is null")
    if whole:
        frame = frame.select("value", "path").unionByName(_text(spark, whole))
    problems = [_problem("torn-file", paths[path], trouble) for path, trouble in sorted(torn.items())]
    return Lines(frame.select("value", "path"), _counted(frame), [*empty, *problems])


def _problem(kind: str, file: JournalFile, trouble: str) -> Problem:
    return Problem(kind, file.file.path, trouble, file.task, file.role, (file.hour,))


def copies(spark: SparkSession, files: Sequence[JournalFile], of: Sequence[JournalFile]) -> dict[str, JournalFile]:
    """Return those of *files* that have the content of another one in *of*, under another name: path and original."""
    by_size: dict[tuple[str, str, int], list[JournalFile]] = defaultdict(list)
    for each in of:
        by_size[each.task, each.role, each.file.size].append(each)
    wanted = {(each.task, each.role, each.file.size) for each in files if each.file.size}
    alike = {each.file.path: each for key in wanted if len(by_size[key]) > 1 for each in by_size[key]}
    if not alike:
        return {}
    contents: dict[tuple[str, str, str], list[JournalFile]] = defaultdict(list)
    read = spark.read.format("binaryFile").load(list(alike))
    for row in read.select(_decoded("path").alias("path"), F.sha2("content", 256).alias("sum")).collect():
        one = alike[row["path"]]
        contents[one.task, one.role, row["sum"]].append(one)
    found: dict[str, JournalFile] = {}
    for same in contents.values():
        # The name holds the time at which a file was made.
        original = min(same, key=lambda each: (each.hour != each.made_in, len(each.name), each.file.path))
        found |= {each.file.path: original for each in same if each is not original}
    return {each.file.path: found[each.file.path] for each in files if each.file.path in found}


def _decoded(path: str) -> Column:
    # The address that Spark tells is encoded as in a URL; the names of tasks may hold what that changes.
    return F.expr(f"url_decode(replace({path}, '+', '%2B'))")


def _text(spark: SparkSession, paths: list[str]) -> DataFrame:
    return spark.read.text(paths).select("value", _decoded("_metadata.file_path").alias("path"))


def _counted(frame: DataFrame) -> dict[str, int]:
    return {row["path"]: row["count"] for row in frame.groupBy("path").count().collect()}


def _members(spark: SparkSession, paths: list[str], *, with_lines: bool = True) -> DataFrame:
    """Return the lines of whole members, and for each file that is torn one row that says so."""
    shape = StructType([StructField(name, StringType()) for name in ("value", "path", "trouble")])
    files = spark.read.format("binaryFile").load(paths).select("path", "content")

    def cut(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa  # noqa: PLC0415 - runs on a worker, which may be the only one to have it

        for batch in batches:
            for path, content in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                lines, trouble = whole_members(content)
                values: list[str | None] = [line.decode("utf-8", "replace") for line in lines if with_lines]
                troubles: list[str | None] = [None] * len(values)
                if trouble is not None:
                    values.append(None)
                    troubles.append(trouble)
                yield pa.RecordBatch.from_arrays(
                    [
                        pa.array(values, pa.string()),
                        pa.array([path] * len(values), pa.string()),
                        pa.array(troubles, pa.string()),
                    ],
                    names=["value", "path", "trouble"],
                )

    return files.mapInArrow(cut, shape).withColumn("path", _decoded("path"))


def whole_members(content: bytes) -> tuple[list[bytes], str | None]:
    """Return the lines of the whole gzip members of *content*, and what is wrong with the rest, None if nothing."""
    lines: list[bytes] = []
    begins, members = 0, 0
    while begins < len(content):
        member = zlib.decompressobj(_GZIP)
        parts, at = [], begins
        try:
            while not member.eof and at < len(content):
                # What a member leaves of its last piece is copied: the pieces are small.
                parts.append(member.decompress(content[at : at + _PIECE]))
                at += _PIECE
        except zlib.error as error:
            return lines, f"unreadable after {members} whole members ({len(content) - begins} bytes left): {error}"
        if not member.eof:
            left = f"{len(content) - begins} bytes left"
            return lines, f"torn: its last member is cut short after {members} whole members ({left})"
        members += 1
        lines += [line for line in b"".join(parts).split(b"\n") if line]
        begins = min(at, len(content)) - len(member.unused_data)
    return lines, None


def records(lines: DataFrame) -> DataFrame:
    """
    Return the record of each line, `landed` from its path, and `trouble` where it is none.

    Shape:   the columns of schema.raw(), path, landed, trouble.
    """
    shape = StructType([*schema.raw().fields, StructField(_CORRUPT, StringType())])
    parsed = lines.where(F.length("value") > 0).select(
        "path",
        "value",
        F.from_json("value", shape, {"columnNameOfCorruptRecord": _CORRUPT}).alias("record"),
        F.concat_ws(
            "T", F.regexp_extract("path", r"/date=([^/]+)/", 1), F.regexp_extract("path", r"/hour=([^/]+)/", 1)
        ).alias("landed"),
    )
    version = F.coalesce(F.col("record.v"), F.get_json_object("value", "$.v").cast("int"))
    incomplete = F.lit(False)
    for name in schema.ALWAYS_THERE:
        incomplete = incomplete | F.col(f"record.{name}").isNull()
    unknown = (
        ~F.col("record.role").isin(*schema.ROLES)
        | ~F.col("record.observer").isin(*schema.OBSERVERS)
        | ~F.col("record.outcome").isin(*schema.OUTCOMES)
    )
    # Python's times end with the year 9999: one beyond that is none, such as one in nanoseconds.
    is_timed = F.col("record.journal_time").between(*_TIMES)
    trouble = (
        F.when(version.isNotNull() & (version != schema.VERSION), F.concat(F.lit("version "), version.cast("string")))
        .when(F.col(f"record.{_CORRUPT}").isNotNull() | version.isNull(), F.lit("malformed"))
        .when(incomplete, F.lit("incomplete"))
        .when(unknown | ~is_timed, F.lit("malformed"))
    )
    told = parsed.select("record.*", "path", "landed", trouble.alias("trouble")).drop(_CORRUPT)
    # The other times are what a message said, or whoever stamped it.
    said = [name for name in schema.TIMES if name != "journal_time"]
    return told.withColumns({name: F.when(F.col(name).between(*_TIMES), F.col(name)) for name in said})


def troubles(found: DataFrame, files: Sequence[JournalFile]) -> list[Problem]:
    """Return what is wrong with the lines of *found*, one problem for each file and kind."""
    at = {each.file.path: each for each in files}
    kinds = {"malformed": "malformed-record", "incomplete": "malformed-record"}
    said = {
        "malformed": "lines that are no records of a journal",
        "incomplete": "records without the fields that every record has",
    }
    rows = found.where("trouble is not null").groupBy("path", "trouble").count().collect()

    def of_version(trouble: str) -> str:
        return f"records of {trouble}, expected {schema.VERSION}"

    return sorted(
        Problem(
            kinds.get(row["trouble"], "unknown-version"),
            row["path"],
            f"{row['count']} {said.get(row['trouble'], of_version(row['trouble']))}",
            at[row["path"]].task,
            at[row["path"]].role,
            (at[row["path"]].hour,),
        )
        for row in rows
    )
