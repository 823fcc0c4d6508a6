"""The tables of the enrich editor: their formats, and what happens if they change or cannot be read."""

import asyncio
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from shared.amqp.values import Value, boolean, double, long, string, timestamp
from shared.clock import ManualClock
from shared.editors.enrich import Enrich
from shared.errors import BuswayError, ConfigError, TargetRefused
from shared.stores.sqlite_stores import FileBlobs
from tests.editing import edited
from tests.fakes import clock_at_delivery
from tests.unit.editors.enriching import CUSTOMERS, by_property, editor, order, problem, properties


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.joinpath("customers.csv").write_text(CUSTOMERS, encoding="utf-8")
    return tmp_path


def test_columns_of_a_json_table_keep_their_types(folder: Path) -> None:
    rows = [{"id": 7, "t": "x", "n": 3, "d": 1.5, "b": True, "z": None}, {"id": "8"}]
    folder.joinpath("t.json").write_text(json.dumps(rows), encoding="utf-8")
    columns = {name: name for name in "tndbz"}
    enrich = editor(folder, table="t.json", key={"property": "customer"}, column="id", properties=columns)
    added = {"t": string("x"), "n": long(3), "d": double(1.5), "b": boolean(True)}
    assert properties(edited(enrich, order("7"))) == {"Customer": string("7")} | added
    assert properties(edited(enrich, order("8"))) == {"Customer": string("8")}


def test_columns_of_a_parquet_table_keep_their_types(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytz", None)  # the app need not have it
    duckdb.connect().from_query(
        "SELECT 'c-' || i AS id, i::BIGINT AS n, i + 0.25::DOUBLE AS d, i > 0 AS b, (i + 0.10)::DECIMAL(9, 2) AS e,"
        " TIMESTAMP '2020-01-31 12:00:00' AS t, TIMESTAMPTZ '2020-01-31 14:00:00+02' AS \"z\"\"\","
        " DATE '2020-01-31' AS y FROM range(3) AS r(i)"
    ).write_parquet(str(folder / "t.parquet"))
    enrich = editor(
        folder,
        table="t.parquet",
        key={"property": "customer"},
        column="id",
        properties={**{name: name for name in "ndbty"}, "z": 'z"'},
        body={"into": "$", "set": {"e": "e", "n": {"column": "n", "type": "string"}}},
    )
    after = edited(enrich, order("c-1"))
    assert properties(after) == {
        "Customer": string("c-1"),
        "n": long(1),
        "d": double(1.25),
        "b": boolean(True),
        "t": timestamp(1_580_472_000_000),
        "y": string("2020-01-31"),
        "z": timestamp(1_580_472_000_000),
    }
    assert after.body == b'{"e": 1.10, "n": "1"}'


def test_parquet_without_its_library_reports_how_to_install_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.joinpath("t.parquet").write_bytes(b"PAR1")
    options = {"table": "t.parquet", "key": {"property": "k"}, "column": "id", "properties": {"v": "v"}}
    assert "table t.parquet: is not Parquet that can be read" in problem(folder, **options)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert "is Parquet, which needs DuckDB in the app: pip install duckdb==" in problem(folder, **options)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("t.csv", "id,v\na,1\nb,2\na,3\n", "row 3 has the key of an earlier row in 'id', expected each once"),
        ("t.csv", "id,v\na\n", "line 2 has 1 values, expected 2, one for each column"),
        ("t.csv", 'id,v\na,"1\n', "is not CSV"),
        ("t.csv", "id,id\n", "two columns with the same name"),
        ("t.csv", "key,v\na,1\n", "has no column 'id', expected it to be the key; it has key, v"),
        ("t.csv", "id,w\na,1\n", "has no column 'v', it has id, w"),
        ("t.csv", "", "has no column 'id'"),
        ("t.csv", b"id,v\na,\xff\n", "is not UTF-8 at byte 7"),
        ("t.json", "{", "is not JSON, line 1"),
        ("t.json", "{}", "is not a table, expected an array of objects"),
        ("t.json", "[1]", "row 1 is not an object"),
        ("t.json", '[{"id": "a", "v": 1}, {"v": 2}]', "row 2 has no key in 'id', expected text or a whole number"),
        ("t.json", '[{"id": 1.5, "v": 1}]', "row 1 has no key in 'id'"),
        ("t.json", '[{"id": "a", "v": {"secret": 1}}]', "row 1: the value in 'v' is not usable, expected text"),
        ("t.json", '[{"id": "a", "v": 1E999999999}]', "row 1: the value in 'v' is not usable"),
        ("t.json", '[{"id": "a", "v": 99999999999999999999}]', "row 1: the value in 'v' is not usable"),
        ("missing.csv", None, "cannot be read: No such file or directory"),
        ("t.txt", "", "expected a name that ends with .csv or .json or .parquet"),
        ("../t.csv", "", "expected one below the folder"),
    ],
)
def test_an_invalid_table_is_reported(folder: Path, name: str, content: str | bytes | None, expected: str) -> None:
    if content is not None and not name.startswith(".."):
        folder.joinpath(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    found = problem(folder, table=name, key={"property": "k"}, column="id", properties={"v": "v"})
    assert expected in found
    assert "secret" not in found.partition("[type=")[0]


@pytest.mark.parametrize(
    ("type_", "text", "expected"),
    [
        ("long", "7", long(7)),
        ("long", "7.0", long(7)),
        ("long", "7.5", None),
        ("long", "seven", None),
        ("long", "1\u0662", None),
        ("long", "9223372036854775808", None),
        ("double", "1e3", double(1000.0)),
        ("double", "NaN", None),
        ("double", "1,5", None),
        ("boolean", "FALSE", boolean(False)),
        ("boolean", "no", None),
        ("timestamp", "1970-01-01", timestamp(0)),
        ("timestamp", "1970-01-01T01:00:00+01:00", timestamp(0)),
        ("timestamp", "6382-12-16T00:55:40.391Z", timestamp(139_259_436_940_391)),
        ("timestamp", "today", None),
        ("string", "7", string("7")),
    ],
)
def test_csv_text_is_converted_to_the_type_of_the_column(folder: Path, type_: str, text: str, expected: Any) -> None:
    folder.joinpath("t.csv").write_text(f'id,v\nc-1,"{text}"\n', encoding="utf-8")
    options: dict[str, Any] = {
        "table": "t.csv",
        "key": {"property": "customer"},
        "column": "id",
        "properties": {"v": {"column": "v", "type": type_}},
    }
    if expected is None:
        assert f"row 1: the value in 'v' is not usable, expected {type_}" in problem(folder, **options)
    else:
        assert properties(edited(editor(folder, None, **options), order()))["v"] == expected


# Tables that change


def changed(path: Path, content: str, clock: ManualClock, seconds_ago: float = 60) -> None:
    path.write_text(content, encoding="utf-8")
    time = clock.now().timestamp() - seconds_ago
    os.utime(path, (time, time))


def segment(enrich: Enrich) -> Value | None:
    return properties(edited(enrich, order())).get("segment")


def test_a_changed_table_is_read_again_after_the_refresh_interval(folder: Path) -> None:
    clock = clock_at_delivery()
    enrich = by_property(folder, clock, refresh="PT30S", properties={"segment": "segment"})
    assert segment(enrich) == string("gold")
    changed(folder / "customers.csv", "id,segment\nc-1,silver\n", clock)
    assert segment(enrich) == string("gold")
    clock.advance(30)
    assert segment(enrich) == string("silver")


def test_an_unreadable_table_keeps_the_previous_version(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    clock, path = clock_at_delivery(), folder / "customers.csv"
    enrich = by_property(folder, clock, refresh="PT1S", properties={"segment": "segment"})
    changed(path, "id,segment\nc-0,x\n", clock, seconds_ago=0)
    clock.advance(1)
    assert segment(enrich) == string("gold")
    for content in ("id,segment\nc-1\n", "id,segment\nc-1,a\nc-1,b\n"):
        changed(path, content, clock)
        for _ in range(3):
            clock.advance(1)
            assert segment(enrich) == string("gold")
    path.unlink()
    clock.advance(1)
    assert segment(enrich) == string("gold")
    changed(path, "id,segment\nc-1,bronze\n", clock)
    clock.advance(1)
    assert segment(enrich) == string("bronze")
    assert [record.message for record in caplog.records if record.levelno == logging.ERROR] == [
        (
            "copy: table customers.csv: line 2 has 1 values, expected 2, one for each column;"
            " the previous version stays in use"
        ),
        (
            "copy: table customers.csv: row 2 has the key of an earlier row in 'id', expected each once;"
            " the previous version stays in use"
        ),
        "copy: table customers.csv: cannot be read: No such file or directory; the previous version stays in use",
    ]


def test_a_table_in_a_blob_is_read_at_the_first_delivery_and_again_after_a_change(tmp_path: Path) -> None:
    path, clock = tmp_path / "store.db", clock_at_delivery()
    blobs = FileBlobs(path, "tables")
    blob = {"setting": "TABLES", "container": "tables", "blob": "customers.csv"}

    by: dict[str, Any] = {"key": {"property": "customer"}, "column": "id", "properties": {"segment": "segment"}}

    def opened() -> Enrich:
        return editor(tmp_path, clock, {"TABLES": f"file:{path}"}, blob=blob, **by)

    with pytest.raises(TargetRefused, match=r"table customers\.csv: is missing, expected it in file:store\.db/tables"):
        segment(opened())
    asyncio.run(blobs.write("customers.csv", b"id,segment"))
    asyncio.run(blobs.write("customers.csv", b"id,other\nc-1,x"))
    with pytest.raises(TargetRefused, match="has no column 'segment'"):
        segment(opened())
    asyncio.run(blobs.write("customers.csv", CUSTOMERS.encode()))
    enrich = opened()
    assert segment(enrich) == string("gold")
    asyncio.run(blobs.write("customers.csv", b"id,segment\nc-1,silver\n"))
    assert segment(enrich) == string("gold")
    clock.advance(60)
    assert segment(enrich) == string("silver")
    path.write_bytes(b"no SQLite file")
    clock.advance(60)
    assert segment(enrich) == string("silver")
    with pytest.raises(BuswayError):
        segment(opened())
    with pytest.raises(ConfigError, match="task copy: enrich: app setting TABLES"):
        editor(tmp_path, **by, blob=blob)
