"""The validate editor: which messages pass, and what it reports about the others."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from shared.amqp.values import NULL, Value, binary, list_, long, string
from shared.codecs.avro import AvroSchema, RawAvro, SingleObject
from shared.codecs.avro_container import Container, write_container
from shared.protocols import Withheld
from tests import editing
from tests.editing import rejection
from tests.messages import message

ORDER = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "id": {"type": "string", "minLength": 3},
        "lines": {"type": "array", "items": {"$ref": "line.json"}, "uniqueItems": True},
        "paid": {"anyOf": [{"type": "boolean"}, {"const": "later"}]},
    },
    "required": ["id", "lines"],
    "additionalProperties": {"type": "null"},
}
LINE = {"type": "object", "properties": {"price": {"type": "number", "minimum": 0}, "kind": {"enum": ["a", "b"]}}}
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
NO_BODY = "the body is an amqp-value ({}), expected data, or a value that is a string or binary"
GOOD = {"id": "4711", "lines": [{"price": 3.5, "kind": "a"}]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas/order.json").write_text(json.dumps(ORDER))
    (tmp_path / "schemas/line.json").write_text(json.dumps(LINE))
    return tmp_path


@pytest.fixture
def editor(folder: Path) -> Any:
    return lambda **options: editing.editor("validate", folder=folder, **options)


def test_a_valid_body_passes_unchanged(editor: Any) -> None:
    check = editor(schema="schemas/order.json")
    for body in (json.dumps(GOOD).encode(), json.dumps(GOOD), binary(json.dumps(GOOD).encode())):
        received = message(body=body)
        before = received.encode()
        assert check.edit(received) == (received,)
        assert received.encode() == before


def test_several_data_sections_are_validated_as_one_body(editor: Any) -> None:
    received = message(body=b'{"id": "4711"')
    received.sections.body += message(body=b', "lines": []}').sections.body
    assert editor(schema="schemas/order.json").edit(received) == (received,)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"id": "4711"}', "$: has no lines"),
        (b"{}", "$: has no id, lines"),
        (b"[]", '$: got an array, expected type "object"'),
        (b'{"id": 5, "lines": []}', '$.id: got a number, expected type "string"'),
        (b'{"id": "x", "lines": []}', "$.id: got a string, expected minLength 3"),
        (
            b'{"id": "xyz", "lines": [{}, {"price": "secret"}]}',
            '$.lines[1].price: got a string, expected type "number"',
        ),
        (b'{"id": "xyz", "lines": [{"price": -1}]}', "$.lines[0].price: got a number, expected minimum 0"),
        (b'{"id": "xyz", "lines": [{"kind": "c"}]}', '$.lines[0].kind: got a string, expected enum ["a", "b"]'),
        (b'{"id": "xyz", "lines": [null]}', '$.lines[0]: got null, expected type "object"'),
        (b'{"id": "xyz", "lines": [{}, {}]}', "$.lines: got an array, expected uniqueItems true"),
        (b'{"id": "xyz", "lines": [], "secret": 1}', '$.*: got a number, expected type "null"'),
    ],
)
def test_a_violation_of_the_schema_is_reported_by_its_path(editor: Any, body: bytes, expected: str) -> None:
    assert rejection(editor(schema="schemas/order.json"), message(body=body)) == ("SchemaViolated", expected)


@pytest.mark.parametrize(
    ("schema", "body", "expected"),
    [
        (False, b"1", "$: got a number, expected nothing"),
        ({"properties": {"a": False}}, b'{"a": 1}', "$: got a number, expected nothing"),
        ({"not": {"type": "null"}}, b"null", "$: got null, expected not"),
        ({"additionalProperties": False}, b'{"b": 1}', "$: got an object, expected additionalProperties false"),
        ({"const": "x" * 500}, b'"secret"', '$: got a string, expected const "' + "x" * 199 + "…"),
    ],
)
def test_each_keyword_reports_its_violation(folder: Path, editor: Any, schema: Any, body: bytes, expected: str) -> None:
    (folder / "other.json").write_text(json.dumps(schema))
    assert rejection(editor(schema="other.json"), message(body=body)) == ("SchemaViolated", expected)


@pytest.mark.parametrize(
    ("body", "reason", "expected"),
    [
        (None, "NoBody", "the message has no body, expected data, or a value that is a string or binary"),
        (list_([long(1)]), "UnreadableBody", NO_BODY.format("list")),
        (NULL, "UnreadableBody", NO_BODY.format("null")),
        (b"", "NotJson", "body is not JSON, line 1 column 1: expecting value"),
        (b"\xef\xbb\xbf{}", "NotJson", "body is not JSON, line 1 column 1: expecting value"),
        (b'{"a": 1,\n "b" 2}', "NotJson", "body is not JSON, line 2 column 6: expecting '"),
        (b'{"a": "\xff"}', "NotJson", "body is not UTF-8 at byte 7, expected JSON in UTF-8"),
        (b'{"a": "\\q"}', "NotJson", "body is not JSON, line 1 column 8: invalid \\escape"),
        (b"[1, NaN]", "NotJson", "body is not JSON, which has no number NaN"),
        (b"-Infinity", "NotJson", "body is not JSON, which has no number -Infinity"),
        (b'{"a": 1, "a": 2}', "NotJson", "body is JSON with a duplicate name in an object"),
        (b"[" * 200_000, "NotJson", "body is JSON nested too deeply to be read"),
        (b"[" * 200_000 + b"]" * 200_000, "NotJson", "body is JSON nested too deeply to be read"),
        (b"1" * 5_000, "NotJson", "body is JSON with a number too long to be read"),
    ],
    ids=range(14),
)
def test_a_body_that_is_not_json_is_reported_but_not_quoted(editor: Any, body: Any, reason: str, expected: str) -> None:
    found, description = rejection(editor(schema="schemas/order.json"), message(body=body))
    assert found == reason
    assert description.startswith(expected)
    assert len(description) < 120


def test_nesting_and_numbers_beyond_the_comparison_are_rejected(folder: Path, editor: Any) -> None:
    (folder / "tree.json").write_text(json.dumps({"items": {"$ref": "#"}, "multipleOf": 0.5}))
    check = editor(schema="tree.json")
    deep = message(body=b"[" * 900 + b"]" * 900)
    assert rejection(check, deep)[1] == "body is nested too deeply to be compared with the schema"
    large = message(body=b"0." + b"1" * 5000)
    assert rejection(check, large)[1] == "body has a number too large to be compared with the schema"


def test_a_body_that_is_wrong_in_many_places_is_reported_quickly(editor: Any) -> None:
    lines = b",".join(b'{"price": "x%d"}' % number for number in range(20_000))
    reason, _ = rejection(editor(schema="schemas/order.json"), message(body=b'{"id": 5, "lines": [%b]}' % lines))
    assert reason == "SchemaViolated"


def test_the_size_limit_counts_the_content_of_the_body(editor: Any) -> None:
    check = editor(max_size=300)
    exact: list[bytes | str | Value] = [b"x" * 300, "x" * 300, binary(b"x" * 300)]
    for body in exact:
        assert check.edit(message(body=body))
    larger: list[bytes | str] = [b"x" * 301, "x" * 301]
    for body in larger:
        assert rejection(check, message(body=body)) == ("BodyTooLarge", "body has 301 bytes, expected at most 300")
    assert check.edit(message(body=None))
    assert rejection(check, message(body=list_([string("x" * 300)])))[0] == "BodyTooLarge"


def test_a_body_over_the_limit_is_not_parsed(editor: Any) -> None:
    check = editor(schema="schemas/order.json", max_size=10)
    assert rejection(check, message(body=b"no JSON at all"))[0] == "BodyTooLarge"


def test_required_properties_are_found_in_any_case_and_null_counts_as_missing(editor: Any) -> None:
    check = editor(required_properties=["Tenant", "sys.SessionId"])
    here = message(named={"tenant": string("")}, session_id="s")
    assert check.edit(here) == (here,)
    found = rejection(check, message(named={"tenant": NULL}))
    assert found == ("PropertyMissing", "has no property Tenant, sys.SessionId")


def test_the_content_type_is_compared_without_its_parameters(editor: Any) -> None:
    check = editor(content_type="application/json")
    for seen in ("application/json", "Application/JSON; charset=utf-8"):
        assert check.edit(message(content_type=string(seen)))
    assert rejection(check, message(content_type=string("text/secret"))) == (
        "WrongContentType",
        "has another content type than application/json",
    )
    assert rejection(check, message(body=b"{}"))[1] == "has no content type, expected application/json"


def test_an_invalid_message_that_is_dropped_is_withheld_with_the_reason(editor: Any) -> None:
    check = editor(schema="schemas/order.json", on_failure="drop")
    assert check.edit(message(body=b"[]")) == Withheld('SchemaViolated: $: got an array, expected type "object"')
    good = message(body=json.dumps(GOOD).encode())
    assert check.edit(good) == (good,)


# Bad options


def problem(folder: Path, **options: Any) -> tuple[str, str]:
    with pytest.raises(ValidationError) as caught:
        editing.editor("validate", folder=folder, **options)
    error, *others = caught.value.errors()
    assert {other["type"] for other in others} <= {"too_short"}
    return ".".join(map(str, error["loc"])), error["msg"].removeprefix("Value error, ")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("missing.json", None, "missing.json: the file is missing"),
        ("x.json", b"{", "x.json: the file is not JSON, line 1 column 2: expecting property name enclosed"),
        ("x.json", b"\xff", "x.json: the file is not UTF-8 at byte 0"),
        ("x.json", b"5", "x.json: is not a JSON schema, expected an object"),
        ("x.json", b'{"type": "objekt"}', "x.json: $.type: 'objekt' is not valid under any of the given schemas"),
        ("x.json", b'{"properties": {"a": {"minimum": "1"}}}', "x.json: $.properties.a.minimum: '1' is not of type"),
        ("x.json", b'{"pattern": "("}', "x.json: $.pattern: "),
        (
            "x.json",
            b'{"$schema": "http://json-schema.org/draft-07/schema#"}',
            "x.json: $schema: names another dialect, expected https://json-schema.org/draft/2020-12/schema",
        ),
        ("x.json", b'{"items": {"$ref": "#/$defs/no"}}', "x.json: '#/$defs/no' is not found in the configuration"),
        ("x.json", b'{"$ref": "no.json"}', "no.json: the file is missing"),
        ("x.json", b'{"$ref": "http://example.com/a"}', "x.json: 'http://example.com/a' is not found in the conf"),
        ("x.json", b'{"$ref": "schemas/bad.json"}', "schemas/bad.json: $.type: 5 is not valid"),
        ("x.json", b'{"$dynamicRef": "#no"}', "x.json: '#no' is not found in the configuration folder"),
    ],
)
def test_an_invalid_schema_is_reported_by_place(folder: Path, name: str, content: bytes | None, expected: str) -> None:
    (folder / "schemas/bad.json").write_text('{"type": 5}')
    if content is not None:
        (folder / name).write_bytes(content)
    place, text = problem(folder, schema=name)
    assert place == "validate.schema"
    assert text.startswith(expected)


@pytest.mark.parametrize("name", ["/etc/passwd", "../secret.json", "schemas/../../x.json", ""])
def test_a_schema_outside_the_configuration_folder_is_refused(folder: Path, name: str) -> None:
    assert problem(folder, schema=name)[1].startswith(f"names the file {name}, expected one below the folder")


def test_a_reference_to_a_file_outside_the_folder_is_refused(folder: Path) -> None:
    (folder.parent / "outside.json").write_text("{}")
    for reference in ("../outside.json", "%2e%2e/outside.json"):
        (folder / "x.json").write_text(json.dumps({"$ref": reference}))
        assert "is not found in the configuration folder" in problem(folder, schema="x.json")[1]


def test_a_schema_is_found_by_its_id(folder: Path, editor: Any) -> None:
    (folder / "schemas/line.json").write_text(json.dumps({"$id": "https://example.com/line", **LINE}))
    (folder / "schemas/list.json").write_text(
        json.dumps({"$id": "https://example.com/list", "items": {"$ref": "line"}, "$defs": {"no": {"$ref": "#"}}})
    )
    check = editor(schema="schemas/list.json")
    assert check.edit(message(body=b'[{"price": 1}]'))
    assert rejection(check, message(body=b'[{"price": "1"}]'))[1] == '$[0].price: got a string, expected type "number"'


@pytest.mark.parametrize(
    ("options", "place", "expected"),
    [
        ({}, "validate", "checks nothing, expected schema, avro, required_properties, content_type or"),
        ({"on_failure": "drop"}, "validate", "checks nothing"),
        ({"max_size": -1}, "validate.max_size", "Input should be greater than or equal to 0"),
        ({"max_size": "5"}, "validate.max_size", "Input should be a valid integer"),
        ({"content_type": "json"}, "validate.content_type", "String should match"),
        ({"required_properties": []}, "validate.required_properties", "Tuple should have at least 1 item"),
        ({"required_properties": ["sys.Secret"]}, "validate.required_properties.0", "names sys.Secret, expected sys."),
        ({"schema": 5}, "validate.schema", "expected the name of a file"),
        ({"max_size": 1, "on_failure": "ignore"}, "validate.on_failure.word", "Input should be 'reject' or 'drop'"),
        ({"avro": "none.avsc"}, "validate.avro", "none.avsc: the file is missing"),
        ({"avro": "schemas/order.json"}, "validate.avro", "schemas/order.json: is not a usable Avro schema"),
        ({"avro": "o.avsc", "schema": "schemas/order.json"}, "validate", "has schema and avro, expected one"),
        ({"max_size": 1, "as": "raw"}, "validate", "has `as` without avro, expected both"),
        ({"max_size": 1, "on_failure": {"mark": "no name"}}, "validate.on_failure.mapping.mark", "String should match"),
    ],
)
def test_bad_options_are_refused(folder: Path, options: dict[str, Any], place: str, expected: str) -> None:
    (folder / "o.avsc").write_text(json.dumps(AVRO))
    found, text = problem(folder, **options)
    assert (found, text[: len(expected)]) == (place, expected)


@pytest.mark.parametrize("form", ["container", "raw", "single_object"])
def test_an_avro_body_is_validated_with_its_schema(folder: Path, editor: Any, form: str) -> None:
    (folder / "order.avsc").write_text(json.dumps(AVRO))
    check = editor(avro="order.avsc", **{"as": form})
    schema = AvroSchema(json.dumps(AVRO).encode())
    codec = {"container": Container, "raw": RawAvro, "single_object": SingleObject}[form](schema)
    good = message(body=codec.write({"id": "4711"}))
    before = good.encode()
    assert check.edit(good) == (good,)
    assert good.encode() == before
    for bad in (codec.write({"id": "s3cr3t"})[:-1], b"", b'{"id": "s3cr3t"}'):
        reason, description = rejection(check, message(body=bad))
        assert reason == "NotAvro"
        assert "s3cr3t" not in description


def test_a_container_may_hold_any_number_of_values(folder: Path, editor: Any) -> None:
    (folder / "order.avsc").write_text(json.dumps(AVRO))
    check = editor(avro="order.avsc")
    schema = AvroSchema(json.dumps(AVRO).encode())
    for values in ([], [{"id": "a"}], [{"id": "a"}, {"id": "b"}]):
        assert check.edit(message(body=write_container(schema, values)))
    other = AvroSchema(b'{"type": "record", "name": "Other", "fields": [{"name": "x", "type": "long"}]}')
    assert rejection(check, message(body=write_container(other, [{"x": 1}])))[0] == "NotAvro"


def test_a_mark_names_the_fault_and_is_removed_once_the_message_is_valid() -> None:
    check = editing.editor("validate", max_size=3, on_failure={"mark": "fault"})
    received = message(body=b"1234")
    assert check.edit(received) == (received,)
    mark = received.application_property("fault")
    assert mark == string("BodyTooLarge: body has 4 bytes, expected at most 3")
    received.body = b"123"
    assert check.edit(received) == (received,)
    assert received.application_property("fault") is None
    untouched = message(body=b"123")
    before = untouched.encode()
    check.edit(untouched)
    assert untouched.encode() == before
