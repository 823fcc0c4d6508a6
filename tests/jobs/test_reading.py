"""Raw files as records: what a block of lines gives at once, and line by line, here and on Spark's workers."""

import gzip
import json
import random
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from time import process_time
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from busway_reconcile.compact.attempt import write_by_workers
from busway_reconcile.compact.local import write_local
from busway_reconcile.journal import schema
from busway_reconcile.journal.schema import VALID_TIMES
from busway_reconcile.read import records as reader
from busway_reconcile.read.files import journal_files
from busway_reconcile.read.gzip_members import Torn, texts_of
from busway_reconcile.read.records import records_of
from busway_reconcile.storage import Storage
from tests.jobs.journals import KINDS, START, Journals, Record, planted

RECORD = Journals()
RECORD.received(1, START, START, order_key="s")
VALID: Record = RECORD.records[0][1]
LINE = json.dumps(VALID)


def with_field(name: str, value: object) -> str:
    return json.dumps({**VALID, name: value})


VALUES: tuple[object, ...] = (None, "x", -1, [], "", 1.0, 2**31, 2**63, True, {})
ALIKE = {
    (kind.simpleString(), name in schema.TIMES, name in schema.ALWAYS_THERE): name
    for name, kind in schema.FIELDS.items()
}
"""A field of each kind. It gets all values, and the others get a few."""

ODD = [
    *(with_field(name, value) for name in schema.FIELDS for value in VALUES[: None if name in ALIKE.values() else 4]),
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


def read(lines: Iterable[bytes], *, block: int) -> tuple[list[Record], dict[str, int]]:
    """Return the records and the troubles of a file with a gzip member for each line, read in blocks of that size."""
    troubles: dict[str, int] = {}
    content = b"".join(gzip.compress(line + b"\n") for line in lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_BLOCK", block)
        return [row for table in records_of(content, troubles) for row in table.to_pylist()], troubles


def read_line_by_line(lines: Iterable[bytes]) -> tuple[list[Record], dict[str, int]]:
    def nothing(*_: object) -> pa.Table:
        raise ValueError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "_by_block", nothing)
        return read(lines, block=1 << 20)


def test_an_odd_line_spoils_no_other_and_a_block_of_lines_is_what_its_lines_are() -> None:
    (good,) = read([LINE.encode()], block=1)[0]
    at_once = 0
    for text in [LINE.encode(), *(each.encode("utf-8", "surrogatepass") for each in ODD), *RAW]:
        lines = [LINE.encode(), text, LINE.encode()]
        found, troubles = read_line_by_line(lines)
        assert (found[0], found[-1]) == (good, good), text
        assert len(found) > 2 or troubles or not text.strip(), text
        for block in (1, 1 << 20):
            assert read(lines, block=block) == (found, troubles), text
        at_once += len(found) == 3
    assert 50 < at_once < len(ODD) - 100


def test_a_line_is_a_record_for_the_job_if_it_is_one_for_the_app() -> None:
    is_record = pytest.importorskip("shared.journal.record", reason="needs the packages of the app").is_record
    for text in ODD:
        try:
            parsed = json.loads(text) if "\n" not in text else None
        except ValueError:
            parsed = None
        # A null among the sites of a path, and other versions, are matters of the job.
        if isinstance(parsed, dict) and parsed.get("v") == 1 and parsed.get("hops") != [None]:
            assert bool(read([text.encode("utf-8", "surrogatepass")], block=1)[0]) == is_record(parsed), text


def whole_members(content: bytes) -> tuple[list[bytes], str | None]:
    found: list[bytes] = []
    try:
        found.extend(texts_of(content))
    except Torn as error:
        return found, str(error)
    return found, None


def test_a_member_that_is_cut_at_any_byte_is_noticed() -> None:
    first, second = gzip.compress(b'{"a":1}\n'), gzip.compress(b'{"b":2}\n')
    whole = first + second
    assert whole_members(whole) == ([b'{"a":1}\n', b'{"b":2}\n'], None)
    for cut in range(len(first) + 1, len(whole)):
        found, trouble = whole_members(whole[:cut])
        assert (found, trouble is None) == ([b'{"a":1}\n'], False)
    assert whole_members(whole + b"no gzip")[0] == [b'{"a":1}\n', b'{"b":2}\n']


def test_a_member_that_becomes_a_thousand_times_as_many_bytes_is_not_unpacked() -> None:
    good = gzip.compress(b'{"a":1}\n')
    tracemalloc.start()
    found = whole_members(good + gzip.compress(bytes(300 << 20), 1) + good)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    too_large = "unreadable after 1 whole members: the next one becomes more than 67108864 bytes"
    assert found == ([b'{"a":1}\n'], too_large)
    assert peak < 400 << 20


def test_empty_objects_do_not_become_a_table_of_all_columns() -> None:
    with pytest.raises(reader._NotFaultless):
        reader._by_block(b"{}\n" * 1000, set())
    assert read([b"{}"] * 1000, block=1 << 20) == ([], {"malformed": 1000})


def test_the_time_to_read_members_grows_linearly_with_their_number() -> None:
    member = gzip.compress(random.Random(0).randbytes(7000), 1)

    def seconds(members: int) -> float:
        content = member * members
        taken = []
        for _ in range(3):
            begun = process_time()
            assert whole_members(content)[1] is None
            taken.append(process_time() - begun)
        return min(taken)

    assert seconds(4000) < 10 * max(seconds(1000), 0.01)


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


@settings(max_examples=50)
@given(records=st.lists(RECORDS, min_size=1, max_size=20), is_ascii=st.booleans())
def test_every_record_is_read_as_it_was_written(records: list[Record], *, is_ascii: bool) -> None:
    lines = [json.dumps(record, ensure_ascii=is_ascii).encode() for record in records]
    found, troubles = read(lines, block=1 << 20)
    assert troubles == {}
    assert found == read(lines, block=200)[0] == read_line_by_line(lines)[0]
    for row, record in zip(found, records, strict=True):
        enqueued = record.get("enqueued_time")
        is_time = enqueued is not None and VALID_TIMES[0] <= enqueued <= VALID_TIMES[1]
        assert (row["enqueued_time"] is not None) == is_time
        assert row["check"] == expected_check(record)
        for name in ("message_id", "hops", "edited", "src_seq", "body_digest", "task"):
            assert row[name] == record.get(name)


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


def test_workers_of_spark_read_what_this_process_reads(spark: SparkSession, tmp_path: Path) -> None:
    journals, _ = planted(KINDS, taps=True, hours=2)
    spoiled = journals.write(tmp_path / "journal")[::2]
    for nth, path in enumerate(spoiled):
        with path.open("ab") as file:
            file.write((gzip.compress(b'no json\n{"v":1}\n{"v":2}\n\n'), b"no gzip")[nth % 2])
    storage = Storage(spark)
    files, _ = journal_files(storage.files(str(tmp_path / "journal")))
    folders = [storage.absolute(str(tmp_path / name)) for name in ("local", "workers")]
    local = write_local(files, f"{folders[0]}/records", 2)
    workers = write_by_workers(spark, storage, files, folders[1])
    assert (local.records, sorted(local.problems)) == (workers.records, sorted(workers.problems))
    assert local.records == len(journals.records)
    assert {problem.kind for problem in local.problems} == {"malformed-record", "torn-file", "unknown-version"}
    assert local.coverage == workers.coverage
    finished, enqueued = finished_and_enqueued(record for _, record in journals.records)
    rows = [row for hour in local.coverage.values() for row in hour]
    assert {each for row in rows for each in row["finished"]} == finished
    assert max(row["last_enqueued"] for row in rows if row["last_enqueued"]) == enqueued
    contents: list[Any] = [
        sorted(map(str, spark.read.parquet(f"{folder}/records").select(*schema.COMPACTED).collect()))
        for folder in folders
    ]
    assert contents[0] == contents[1]
