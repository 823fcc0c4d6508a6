"""What the enrich editor adds to properties and bodies, and which options it refuses."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.amqp.codec import encode
from shared.amqp.values import boolean, double, long, string, symbol, timestamp
from shared.editors.enrich import Enrich
from shared.editors.lookup.json_members import with_members
from shared.errors import MessageRejected
from tests.editing import answers, edited
from tests.fakes import clock_at_delivery
from tests.messages import ENQUEUED, message
from tests.unit.editors.enriching import CUSTOMERS, by_property, editor, fault, order, problem, properties


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.joinpath("customers.csv").write_text(CUSTOMERS, encoding="utf-8")
    return tmp_path


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


def test_a_missing_value_removes_the_property_and_an_empty_text_sets_it(folder: Path) -> None:
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
def test_the_key_is_a_property_or_a_value_of_the_body(folder: Path, key: Any, given: Any) -> None:
    folder.joinpath("t.csv").write_text("k,v\n7,found\n", encoding="utf-8")
    enrich = editor(folder, table="t.csv", key=key, column="k", properties={"v": "v"})
    assert properties(edited(enrich, given))["v"] == string("found")


def test_a_missing_key_rejects_passes_or_uses_the_default_as_configured(folder: Path) -> None:
    assert fault(by_property(folder), order("c-9")) == ("KeyMissing: customer is not a key in the table's column 'id'")
    assert fault(by_property(folder), order(None)) == (
        "KeyMissing: has no text or whole number at customer, expected a key of the table"
    )
    assert "no text" in fault(by_property(folder), order(boolean(True)))
    assert properties(edited(by_property(folder, missing="pass"), order("c-9"))) == {"Customer": string("c-9")}
    default = {"segment": "none", "limit": 0, "since": None, "active": False}
    after = edited(by_property(folder, missing="default", default=default), order("c-9"))
    assert properties(after) == {
        "Customer": string("c-9"), "segment": string("none"), "limit": double(0.0), "active": boolean(False),
    }  # fmt: skip


def test_one_rejected_message_does_not_affect_the_others(folder: Path) -> None:
    results = answers(by_property(folder), order(), order("c-9"), order("c-2"))
    assert [isinstance(result, MessageRejected) for result in results] == [False, True, False]


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
def test_members_are_added_and_the_rest_of_the_body_is_kept(folder: Path, body: str, into: str, expected: str) -> None:
    enrich = into_body(folder, into, segment="segment", limit={"column": "limit", "type": "double"})
    assert edited(enrich, order(body=body)).body == expected.encode()


@pytest.mark.parametrize(
    ("body", "into", "expected"),
    [
        ("[1]", "$", "NoObject: the body has no object at $, expected one"),
        ('{"a": "text"}', "$.a", "NoObject: the body has no object at $.a, expected one"),
        ('{"b": {}}', "$.a.b", "FieldMissing: the body has nothing at $.a, expected an object"),
        ("{", "$", "NotJson: body is not JSON"),
        ('{"a": 1, "a": 2}', "$", "NotJson: body is JSON with a duplicate name in an object"),
        ("[" * 100_000, "$", "NotJson"),
        ('{"n": ' + "9" * 5000 + "}", "$", "NotJson"),
    ],
)
def test_a_body_without_the_object_to_extend_is_rejected(folder: Path, body: str, into: str, expected: str) -> None:
    found = fault(into_body(folder, into, segment="segment"), order(body=body))
    assert found.startswith(expected)
    assert "text" not in found.removeprefix(expected)


def test_a_string_body_stays_a_string_body(folder: Path) -> None:
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


@given(
    body=st.dictionaries(st.text(max_size=3), _JSON, max_size=4),
    members=st.dictionaries(st.text(max_size=3), _JSON, max_size=3),
    blank=st.sampled_from(["", " ", "\n\t"]),
)
def test_members_replace_or_extend_those_of_the_object(body: Any, members: Any, blank: str) -> None:
    text = with_members(dumped(body, blank), [], [(name, dumped(member, blank)) for name, member in members.items()])
    assert json.loads(text, parse_float=Decimal) == {**body, **members}
    within = with_members(
        dumped({"o": body, "z": body}, blank), ["o"], [(n, dumped(e, blank)) for n, e in members.items()]
    )
    assert json.loads(within, parse_float=Decimal) == {"o": {**body, **members}, "z": body}


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
