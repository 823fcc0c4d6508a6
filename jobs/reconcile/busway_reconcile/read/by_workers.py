"""Raw files as records, read by Spark's workers, wherever the files are."""

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession

from busway_reconcile.journal import schema
from busway_reconcile.read.files import hour_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa


def read_by_workers(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """
    Return the records of the files at *paths*, and a row for each trouble of a file.

    Shape:   schema.compacted(); `path`, `trouble` and its `count`, null for a record.
    """
    shape = schema.compacted().add("path", "string").add("trouble", "string").add("count", "long")
    files = spark.read.format("binaryFile").load(list(paths)).select("path", "content")

    def read(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa  # noqa: PLC0415 - this runs on a worker, and the driver may lack it

        from busway_reconcile.read.records import COMPACTED, records_of  # noqa: PLC0415 - likewise

        added = [("landed", pa.string()), ("path", pa.string()), ("trouble", pa.string()), ("count", pa.int64())]
        whole = pa.schema([*COMPACTED, *added])
        for batch in batches:
            for address, content in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                # Spark encodes addresses as in a URL, which changes some task names.
                path, troubles = unquote(address), dict[str, int]()
                hour = hour_in(path)
                for table in records_of(content, troubles):
                    count = table.num_rows
                    more = [pa.array([hour] * count, pa.string()), *(pa.nulls(count, kind) for _, kind in added[1:])]
                    yield from pa.table([*table.columns, *more], schema=whole).combine_chunks().to_batches()
                rows = [
                    {"landed": hour, "path": path, "trouble": text, "count": count} for text, count in troubles.items()
                ]
                yield from pa.Table.from_pylist(rows, schema=whole).to_batches()

    return files.mapInArrow(read, shape)
