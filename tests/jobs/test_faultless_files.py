"""Raw files that Arrow reads: it must find in them what Spark finds, or leave them to Spark."""

import gzip
import json
import shutil
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from busway_reconcile.compact import faultless
from busway_reconcile.compact.faultless import NotFaultless, faultless_records
from busway_reconcile.compact.hours import Hour, compact_hours
from busway_reconcile.compact.records import compact_records
from busway_reconcile.journal import schema
from busway_reconcile.journal.schema import VALID_TIMES
from busway_reconcile.read.files import journal_files
from busway_reconcile.read.records import parse_files
from busway_reconcile.storage import Storage
from tests.jobs.journals import KINDS, START, Journals, Record, leave_to_spark, planted

RECORD = Journals()
RECORD.received(1, START, START, order_key="s")
VALID: Record = RECORD.records[0][1]
LINE = json.dumps(VALID)


def with_field(name: str, value: object) -> str:
    return json.dumps({**VALID, name: value})


VALUES: tuple[object, ...] = (None, "", "x", -1, 1.0, 2**31, 2**63, True, [], {})

ODD = [
    *(with_field(name, value) for name in schema.FIELDS for value in VALUES),
    *(with_field(name, 10**18) for name in schema.TIMES),
    *(with_field("check", value) for value in ("f" * 16, "F" * 16, "0" * 15, "0" * 17, "g" * 16, "0 " * 8, "é" * 16)),
    *(with_field("body_digest", value) for value in ("f" * 16, "f" * 31, "ab " * 16, "Ab" * 16)),
    *(with_field("hops", value) for value in ([1], [None], [["a"]], "west", [""], ["\u2028", "\ud83d\ude00"])),
    with_field("message_id", 'line\u2028\u0000\\ "quoted" \U0001f600'),
    with_field("unknown", {"deeply": [1, {"nested": None}]}),
    LINE.replace('"src_seq": 1', '"src_seq": 1, "src_seq": 2'),
    LINE.replace('"src_seq": 1', '"src_seq": 01'),
    LINE.replace('"src_seq": 1', '"src_seq": 1e0'),
    LINE.replace('"src_seq"', '"SRC_SEQ"'),
    LINE + LINE,
    LINE + " " + LINE + "\n" + LINE.replace(", ", ",\n", 1),
    LINE.replace(", ", ",\n", 1),
    LINE[:-1],
    LINE[1:],
    f" {LINE}",
    f"{LINE} ",
    f"{LINE}\r",
    f"\ufeff{LINE}",
    f"{LINE}\n\n{LINE}",
    f"[{LINE}]",
    "null",
    "{}",
    "NaN",
    f"{LINE}}}",
    LINE.replace('"v": 1', '"v": NaN'),
    LINE.replace(": ", " :\t"),
    LINE.replace("west", "w\\u0065st"),
    LINE.replace("west", "\\ud800"),
    LINE.replace("west", "w\tst"),
    "// comment\n" + LINE,
    LINE.replace('"', "'"),
]  # fmt: skip
RAW = [
    LINE.replace("west", "w\udcff").encode("utf-8", "surrogateescape"),
    b"\x00" + LINE.encode(),
    LINE.encode("utf-16"),
]


def write(path: Path, lines: Iterable[bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(b"".join(line + b"\n" for line in lines)))
    return path


def read_by_arrow(path: Path) -> list[Record] | None:
    """Return the records of a file, which are the same if each line is a block of its own."""
    found = read_in_blocks(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(faultless, "_BLOCK", 200)
        assert read_in_blocks(path) == found
    return found


def read_in_blocks(path: Path) -> list[Record] | None:
    try:
        return [row for table in faultless_records(str(path)) for row in table.to_pylist()]
    except NotFaultless:
        return None


def test_arrow_finds_in_odd_lines_what_spark_finds_or_leaves_them_to_it(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "task=t" / "date=2026-11-20" / "hour=00" / "role=source"
    texts = [LINE.encode(), *(each.encode("utf-8", "surrogatepass") for each in ODD), *RAW]
    paths = [
        write(folder / f"{nth}-0.jsonl.gz", [LINE.encode(), text, LINE.encode()]) for nth, text in enumerate(texts)
    ]
    parsed = compact_records(parse_files(spark, [str(path) for path in paths], []).withColumn("path", F.lit(None)))
    read = parsed.drop("landed", "path", "kind").withColumn("file", F.input_file_name())
    times = {name: F.unix_micros(name) for name in schema.TIMES}
    by_spark: dict[str, list[Record]] = {}
    for row in read.withColumns(times).collect():
        values = row.asDict(recursive=True)
        by_spark.setdefault(values.pop("file").rpartition("/")[2].partition("-")[0], []).append(values)
    taken = 0
    for nth, path in enumerate(paths):
        found = read_by_arrow(path)
        if found is None:
            continue
        taken += 1
        expected = by_spark[str(nth)]
        assert all(each.pop("trouble") is None for each in expected), texts[nth]
        for one in found:
            for name in schema.TIMES:
                one[name] = None if one[name] is None else round(one[name].timestamp() * 1_000_000)
        assert sorted(map(str, found)) == sorted(map(str, expected)), texts[nth]
    assert read_by_arrow(paths[0]) is not None
    assert 50 < taken < len(paths) - 100


def test_a_file_that_is_cut_anywhere_is_left_to_spark(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl.gz", [LINE.encode()] * 3)
    whole = path.read_bytes()
    for cut in range(1, len(whole)):
        path.write_bytes(whole + whole[:cut])
        assert read_in_blocks(path) is None, cut
    path.write_bytes(whole + b"no gzip")
    assert read_in_blocks(path) is None
    path.write_bytes(whole + whole)
    assert len(read_in_blocks(path) or []) == 6


NUMBER = st.integers(-(2**63), 2**63 - 1)
RECORDS = st.builds(
    lambda optional, digests, number: {**VALID, **optional, **digests, "src_seq": number},
    st.fixed_dictionaries(
        {},
        optional={
            "message_id": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
            "enqueued_time": st.none() | NUMBER,
            "hops": st.none() | st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), max_size=3),
            "edited": st.booleans(),
        },
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "check": st.none() | st.integers(0, 2**64 - 1).map("{:016x}".format),
            "body_digest": st.none() | st.integers(0, 2**128 - 1).map("{:032x}".format),
            "property_digest": st.none() | st.integers(0, 2**64 - 1).map("{:016X}".format),
        },
    ),
    NUMBER,
)


def expected_check(record: Record) -> int | None:
    given_check, body, properties = (record.get(name) for name in ("check", "body_digest", "property_digest"))
    if given_check is not None:
        bits = int(given_check, 16)
    elif body is not None:
        bits = int(body[:16], 16) ^ int(properties or "0", 16)
    else:
        return None
    return bits - 2**64 if bits >= 2**63 else bits


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=st.lists(RECORDS, min_size=1, max_size=20), is_ascii=st.booleans())
def test_every_record_is_read_as_it_was_written(tmp_path: Path, records: list[Record], *, is_ascii: bool) -> None:
    lines = [json.dumps(record, ensure_ascii=is_ascii).encode() for record in records]
    found = read_by_arrow(write(tmp_path / "x.jsonl.gz", lines))
    assert found is not None
    for row, record in zip(found, records, strict=True):
        enqueued = record.get("enqueued_time")
        is_time = enqueued is not None and VALID_TIMES[0] <= enqueued <= VALID_TIMES[1]
        assert (row["enqueued_time"] is not None) == is_time
        assert row["check"] == expected_check(record)
        for name in ("message_id", "hops", "edited", "src_seq", "body_digest", "task"):
            assert row[name] == record.get(name)


def compacted(spark: SparkSession, folder: Path) -> dict[str, Hour]:
    files, problems = journal_files(Storage(spark).files(str(folder / "journal")))
    assert problems == []
    hours = {file.hour for file in files}
    return compact_hours(
        spark, Storage(spark), files, str(folder / "compacted"), now=START + timedelta(days=2), hours=hours
    )


def finished_and_enqueued(records: Iterable[Record]) -> tuple[set[int], int]:
    """Return the first and last time of each minute in which tasks finished messages, and the last enqueued time."""
    ends: dict[tuple[str, str, str, int], list[int]] = {}
    last = 0
    for record in records:
        last = max(last, record.get("enqueued_time") or 0)
        if record["observer"] == "task" and record["outcome"] in ("sent", *schema.WITHHELD):
            key = record["task"], record.get("target") or "", record["outcome"], record["journal_time"] // 60_000_000
            ends.setdefault(key, []).append(record["journal_time"])
    return {end for times in ends.values() for end in (min(times), max(times))}, last


def test_hours_that_arrow_compacts_are_those_that_spark_compacts(spark: SparkSession, tmp_path: Path) -> None:
    by_arrow, by_spark, by_both = (tmp_path / name for name in ("arrow", "spark", "both"))
    journals, _ = planted(KINDS, taps=True, hours=2)
    written = journals.write(by_arrow / "journal")
    shutil.copytree(by_arrow / "journal", by_spark / "journal")
    shutil.copytree(by_arrow / "journal", by_both / "journal")
    for nth, path in enumerate(written):
        below = path.relative_to(by_arrow)
        for folder in [by_spark, *[by_both] * (nth % 2)]:
            leave_to_spark(folder / below)
    found = [compacted(spark, folder) for folder in (by_arrow, by_spark, by_both)]
    content = [{hour: (each.records, each.coverage, each.problems) for hour, each in hours.items()} for hours in found]
    assert content[0] == content[1] == content[2]
    assert sum(hour.records for hour in found[0].values()) == len(journals.records)
    finished, enqueued = finished_and_enqueued(record for _, record in journals.records)
    rows = [row for hour in found[0].values() for row in hour.coverage]
    assert {each for row in rows for each in row["finished"]} == finished
    assert max(row["last_enqueued"] for row in rows if row["last_enqueued"]) == enqueued
    tables = [
        parquet.read_table(path / "compacted" / "records", columns=list(schema.COMPACTED))
        for path in (by_arrow, by_spark, by_both)
    ]
    lines = [sorted(map(str, table.to_pylist())) for table in tables]
    assert lines[0] == lines[1] == lines[2]
    assert list((by_arrow / "compacted" / "records").glob("*/part-?.parquet"))
