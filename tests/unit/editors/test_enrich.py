"""What a table and the task add to a message, and what happens to tables that change or break."""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from shared.amqp.codec import encode
from shared.amqp.values import Value, boolean, double, long, string, symbol, timestamp
from shared.clock import ManualClock
from shared.editors.enrich import Enrich, EnrichStep
from shared.editors.lookup.json_members import with_members
from shared.editors.options import FOLDER
from shared.errors import BuswayError, ConfigError, MessageRejected, TargetRefused
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.protocols import EditedTogether
from shared.stores.sqlite_stores import FileBlobs
from tests.fakes import clock_at_delivery, task_facts
from tests.messages import ENQUEUED, message

ORIGIN = Origin("west", "orders")
CUSTOMERS = "id,segment,limit,since,active\nc-1,gold,10.50,2020-01-31T12:00:00Z,true\nc-2,,,,\n"
COLUMNS = {
    "segment": "segment",
    "limit": {"column": "limit", "type": "double"},
    "since": {"column": "since", "type": "timestamp"},
    "active": {"column": "active", "type": "boolean"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.joinpath("customers.csv").write_text(CUSTOMERS, encoding="utf-8")
    return tmp_path


def editor(folder: Path, clock: ManualClock | None = None, app: dict[str, str] | None = None, **options: Any) -> Enrich:
    return EnrichStep.model_validate({"enrich": options}, context={FOLDER: folder}).editor(task_facts(app, clock))


def by_property(folder: Path, clock: ManualClock | None = None, **options: Any) -> Enrich:
    asked = {"table": "customers.csv", "key": {"property": "customer"}, "column": "id", "properties": COLUMNS}
    return editor(folder, clock, **{**asked, **options})


def order(customer: Value | str | None = "c-1", body: str = "{}", **options: Any) -> Message:
    value = string(customer) if isinstance(customer, str) else customer
    named = {} if value is None else {"Customer": value}
    return message(1, body=body.encode(), named=named, **options)


def asked(enrich: Enrich, *messages: Message) -> Sequence[EditedTogether]:
    return asyncio.run(enrich.edit_batch(messages, timeout_seconds=5))


def edited(enrich: Enrich, given: Message) -> Message:
    (result,) = asked(enrich, given)
    assert isinstance(result, Sequence), result
    assert isinstance(result[0], Message)
    return result[0]


def properties(given: Message) -> dict[str, Value]:
    return dict(given.application_properties())


def fault(enrich: Enrich, given: Message) -> str:
    (result,) = asked(enrich, given)
    assert isinstance(result, MessageRejected), result
    return str(result)


def problem(folder: Path | None, **options: Any) -> str:
    with pytest.raises(ValidationError) as raised:
        EnrichStep.model_validate({"enrich": options}, context={FOLDER: folder})
    return str(raised.value)


# Into properties


def test_columns_become_properties_of_their_types(folder: Path) -> None:
    before = order()
    after = edited(by_property(folder), before)
    assert properties(after) == {
        "Customer": string("c-1"),
        "segment": string("gold"),
        "limit": double(10.5),
        "since": timestamp(1_580_472_000_000),
        "active": boolean(True),
    }
    assert properties(before) == {"Customer": string("c-1")}
    assert (after.message_id, after.arrival, after.body) == (before.message_id, before.arrival, b"{}")


def test_a_value_that_is_empty_removes_the_property_and_an_empty_text_is_one(folder: Path) -> None:
    before = order("c-2")
    before.set_properties({"limit": double(1.0)})
    assert properties(edited(by_property(folder), before)) == {"Customer": string("c-2"), "segment": string("")}


@pytest.mark.parametrize(
    ("key", "given"),
    [
        ({"property": "CUSTOMER"}, order("7")),
        ({"property": "customer"}, order(long(7))),
        ({"property": "customer"}, order(symbol("7"))),
        ({"property": "sys.SessionId"}, order(None, session_id="7")),
        ({"property": "sys.SequenceNumber"}, message(7)),
        ({"body": "$.order.customer.id"}, order(None, body='{"order": {"customer": {"id": "7"}}}')),
        ({"body": "$.ids[1]"}, order(None, body='{"ids": [1, 7]}')),
    ],
)
def test_a_key_is_a_property_or_a_value_of_the_body(folder: Path, key: Any, given: Any) -> None:
    folder.joinpath("t.csv").write_text("k,v\n7,found\n", encoding="utf-8")
    enrich = editor(folder, table="t.csv", key=key, column="k", properties={"v": "v"})
    assert properties(edited(enrich, given))["v"] == string("found")


def test_a_key_that_is_missing_is_rejected_passed_or_gets_what_is_the_default(folder: Path) -> None:
    assert fault(by_property(folder), order("c-9")) == (
        "KeyMissing: enrich: customer is not a key in the table's column 'id'"
    )
    assert fault(by_property(folder), order(None)) == (
        "KeyMissing: enrich: has no text or whole number at customer, expected a key of the table"
    )
    assert "no text" in fault(by_property(folder), order(boolean(True)))
    assert properties(edited(by_property(folder, missing="pass"), order("c-9"))) == {"Customer": string("c-9")}
    default = {"segment": "none", "limit": 0, "since": None, "active": False}
    after = edited(by_property(folder, missing="default", default=default), order("c-9"))
    assert properties(after) == {
        "Customer": string("c-9"), "segment": string("none"), "limit": double(0.0), "active": boolean(False),
    }  # fmt: skip


def test_one_rejected_message_does_not_affect_the_others(folder: Path) -> None:
    results = asked(by_property(folder), order(), order("c-9"), order("c-2"))
    assert [isinstance(each, MessageRejected) for each in results] == [False, True, False]


def test_facts_about_the_arrival_become_properties(folder: Path) -> None:
    names = ("task", "site", "entity", "partition", "enqueued_time", "sequence_number", "received_time")
    clock = clock_at_delivery()
    clock.advance(2)
    after = edited(editor(folder, clock, facts={f"by-{name}": name for name in names}), order(None))
    assert properties(after) == {
        "by-task": string("copy"),
        "by-site": string("west"),
        "by-entity": string("orders"),
        "by-enqueued_time": timestamp(ENQUEUED),
        "by-sequence_number": long(1),
        "by-received_time": timestamp(ENQUEUED + 2000),
    }


# Into the body


def into_body(folder: Path, into: str, **members: object) -> Enrich:
    return by_property(folder, properties={}, body={"into": into, "set": members})


@pytest.mark.parametrize(
    ("body", "into", "expected"),
    [
        ("{}", "$", '{"segment": "gold", "limit": 10.50}'),
        ('{"n": 1.0}', "$", '{"n": 1.0, "segment": "gold", "limit": 10.50}'),
        ('{ "limit" : [1] , "n":1E400 }', "$", '{ "limit" : 10.50 , "n":1E400, "segment": "gold" }'),
        (
            '{"c":{"x": "}"}, "n": 10000000000000000001}',
            "$.c",
            '{"c":{"x": "}", "segment": "gold", "limit": 10.50}, "n": 10000000000000000001}',
        ),
        ('{"n": 1.10}', "$.c", '{"n": 1.10, "c": {"segment": "gold", "limit": 10.50}}'),
        ('\n{"a": {"b": {}}}\n', "$.a['b']", '\n{"a": {"b": {"segment": "gold", "limit": 10.50}}}\n'),
    ],
)
def test_members_are_put_into_the_body_and_the_rest_keeps_every_byte(
    folder: Path, body: str, into: str, expected: str
) -> None:
    enrich = into_body(folder, into, segment="segment", limit={"column": "limit", "type": "double"})
    assert edited(enrich, order(body=body)).body == expected.encode()


@pytest.mark.parametrize(
    ("body", "into", "expected"),
    [
        ("[1]", "$", "NoObject: enrich: the body has no object at $, expected one"),
        ('{"a": "text"}', "$.a", "NoObject: enrich: the body has no object at $.a, expected one"),
        ('{"b": {}}', "$.a.b", "FieldMissing: enrich: the body has nothing at $.a, expected an object"),
        ("{", "$", "NotJson: enrich: body is not JSON"),
        ('{"a": 1, "a": 2}', "$", "NotJson: enrich: body is JSON with a duplicate name in an object"),
        ("[" * 100_000, "$", "NotJson"),
        ('{"n": ' + "9" * 5000 + "}", "$", "NotJson"),
    ],
)
def test_a_body_that_has_no_such_object_is_rejected(folder: Path, body: str, into: str, expected: str) -> None:
    found = fault(into_body(folder, into, segment="segment"), order(body=body))
    assert found.startswith(expected)
    assert "text" not in found.removeprefix(expected)


def test_a_body_stays_of_the_kind_that_it_was(folder: Path) -> None:
    given = order()
    given.sections.body = b"\x00\x53\x77" + encode(string('{"ä": 1}'))
    after = edited(into_body(folder, "$", segment="segment"), given)
    assert after.sections.body == b"\x00\x53\x77" + encode(string('{"ä": 1, "segment": "gold"}'))


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.decimals(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def dumped(value: object, blank: str) -> str:
    match value:
        case Decimal():
            return str(value)
        case dict():
            members = (f"{json.dumps(name)}{blank}:{blank}{dumped(each, blank)}" for name, each in value.items())
            return f"{{{blank}{f'{blank},{blank}'.join(members)}{blank}}}"
        case list():
            return f"[{blank}{f',{blank}'.join(dumped(each, blank) for each in value)}{blank}]"
        case _:
            return json.dumps(value)


@settings(max_examples=40, deadline=None)
@given(
    body=st.dictionaries(st.text(max_size=3), _JSON, max_size=4),
    members=st.dictionaries(st.text(max_size=3), _JSON, max_size=3),
    blank=st.sampled_from(["", " ", "\n\t"]),
)
def test_members_are_put_in_as_json_has_them(body: Any, members: Any, blank: str) -> None:
    text = with_members(dumped(body, blank), [], [(name, dumped(each, blank)) for name, each in members.items()])
    assert json.loads(text, parse_float=Decimal) == {**body, **members}
    within = with_members(
        dumped({"o": body, "z": body}, blank), ["o"], [(n, dumped(e, blank)) for n, e in members.items()]
    )
    assert json.loads(within, parse_float=Decimal) == {"o": {**body, **members}, "z": body}


# Tables


def test_a_json_table_has_types_of_its_own(folder: Path) -> None:
    rows = [{"id": 7, "t": "x", "n": 3, "d": 1.5, "b": True, "z": None}, {"id": "8"}]
    folder.joinpath("t.json").write_text(json.dumps(rows), encoding="utf-8")
    columns = {name: name for name in "tndbz"}
    enrich = editor(folder, table="t.json", key={"property": "customer"}, column="id", properties=columns)
    added = {"t": string("x"), "n": long(3), "d": double(1.5), "b": boolean(True)}
    assert properties(edited(enrich, order("7"))) == {"Customer": string("7")} | added
    assert properties(edited(enrich, order("8"))) == {"Customer": string("8")}


def test_a_parquet_table_has_types_of_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_an_invalid_table_is_reported_at_load(
    folder: Path, name: str, content: str | bytes | None, expected: str
) -> None:
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
        ("long", "9223372036854775808", None),
        ("double", "1e3", double(1000.0)),
        ("double", "NaN", None),
        ("double", "1,5", None),
        ("boolean", "FALSE", boolean(False)),
        ("boolean", "no", None),
        ("timestamp", "1970-01-01", timestamp(0)),
        ("timestamp", "1970-01-01T01:00:00+01:00", timestamp(0)),
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


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "adds nothing"),
        ({"key": {"property": "k"}}, "has a key, column, properties or body without a table or blob"),
        ({"table": "customers.csv"}, "a table needs a key"),
        ({"table": "customers.csv", "key": {"property": "k"}, "column": "id"}, "properties or body"),
        ({"key": {}}, "expected property or body"),
        ({"key": {"property": "sys.Nothing"}}, "sys.Nothing"),
        ({"key": {"body": "$.a[*]"}}, "leads to several values"),
        ({"key": {"body": "a.b"}}, "is not a path"),
        ({"facts": {"repl-path": "site"}}, "belongs to the history"),
        ({"facts": {"a": "weather"}}, "facts.a"),
        ({"refresh": "PT0S"}, "refresh"),
        ({"body": {"into": "$.a[0]", "set": {"a": "b"}}}, "leads to more than members"),
        ({"facts": {"a": "task"}, "missing": "default"}, "need each other"),
    ],
)
def test_options_are_checked(folder: Path, options: dict[str, Any], expected: str) -> None:
    assert expected in problem(folder, **options)


def test_default_values_fit_the_columns(folder: Path) -> None:
    options = {"table": "customers.csv", "key": {"property": "k"}, "column": "id", "missing": "default"}
    columns = {"limit": {"column": "limit", "type": "long"}}
    assert "need each other" in problem(folder, **options, properties=columns)
    found = problem(folder, **options, properties=columns, default={"other": 1})
    assert "default: 'limit', expected a value for each column that is used" in found
    found = problem(folder, **options, properties=columns, default={"limit": "much"})
    assert "default: the value in 'limit' is not usable, expected long" in found


# Tables that change


def changed(path: Path, content: str, clock: ManualClock, seconds_ago: float = 60) -> None:
    path.write_text(content, encoding="utf-8")
    time = clock.now().timestamp() - seconds_ago
    os.utime(path, (time, time))


def segment(enrich: Enrich) -> Value | None:
    return properties(edited(enrich, order())).get("segment")


def test_a_table_that_has_changed_is_read_again_once_in_a_while(folder: Path) -> None:
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


def test_a_table_in_a_blob_is_read_at_the_first_delivery_and_when_it_has_changed(tmp_path: Path) -> None:
    path, clock = tmp_path / "store.db", clock_at_delivery()
    blobs = FileBlobs(path, "tables")
    blob = {"setting": "TABLES", "container": "tables", "blob": "customers.csv"}
    options: dict[str, Any] = {
        "blob": blob,
        "key": {"property": "customer"},
        "column": "id",
        "properties": {"segment": "segment"},
    }

    def opened() -> Enrich:
        return editor(tmp_path, clock, {"TABLES": f"file:{path}"}, **options)

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
        editor(tmp_path, **options)
