"""Lines of a journal as records, and the problems of lines that are none."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses
from pyspark.sql.types import StringType, StructField, StructType

from jobs.reconcile.journal import schema
from jobs.reconcile.journal.problems import Problem
from jobs.reconcile.read.files import JournalFile

_CORRUPT = "not_json"
_TIMES = (0, 253_402_214_400_000_000)  # microseconds, from 1970 to the last day of 9999

PARSED = (*schema.FIELDS, "path", "landed", "trouble")
"""The columns of a parsed line."""


def parse_records(lines: DataFrame) -> DataFrame:
    """
    Return the record of each line, `landed` from its path, and in `trouble` why a line is no record.

    Shape:   `value` and `path` in, PARSED out.
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
    # Python's times end with the year 9999; a later one is invalid, for example a time in nanoseconds.
    is_timed = F.col("record.journal_time").between(*_TIMES)
    trouble = (
        F.when(version.isNotNull() & (version != schema.VERSION), F.concat(F.lit("version "), version.cast("string")))
        .when(F.col(f"record.{_CORRUPT}").isNotNull() | version.isNull(), F.lit("malformed"))
        .when(incomplete, F.lit("incomplete"))
        .when(unknown | ~is_timed, F.lit("malformed"))
    )
    flat = parsed.select("record.*", "path", "landed", trouble.alias("trouble"))
    # The other times come from the message or from the sender: an invalid one says nothing about the record.
    others = [name for name in schema.TIMES if name != "journal_time"]
    return flat.withColumns({name: F.when(F.col(name).between(*_TIMES), F.col(name)) for name in others}).select(
        *PARSED
    )


def record_problems(parsed: DataFrame, files: Sequence[JournalFile]) -> list[Problem]:
    """Return the problems of the lines of *parsed*, one for each file and kind."""
    at = {each.file.path: each for each in files}
    kinds = {"malformed": "malformed-record", "incomplete": "malformed-record"}
    texts = {
        "malformed": "lines that are not journal records",
        "incomplete": "records without a required field",
    }
    rows = parsed.where("trouble is not null").groupBy("path", "trouble").count().collect()

    def of_version(trouble: str) -> str:
        return f"records of {trouble}, expected {schema.VERSION}"

    return sorted(
        Problem(
            kinds.get(row["trouble"], "unknown-version"),
            row["path"],
            f"{row['count']} {texts.get(row['trouble'], of_version(row['trouble']))}",
            at[row["path"]].task,
            at[row["path"]].role,
            (at[row["path"]].hour,),
        )
        for row in rows
    )
