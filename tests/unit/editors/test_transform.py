"""The transform editor: expressions, exact numbers, and bodies that are rejected."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from shared.amqp.codec import encode
from shared.amqp.values import Value, binary, string
from shared.testing import edited, message

BODY = (
    '{"a": 10.10, "b": 1E400, "big": 12345678901234567890123, "s": "Text", "n": null,'
    ' "l": [1, 2.5], "o": {"p": {"q": 1}}, "t": true, "z": [-0, 0, -0.0]}'
)


def made(expression: str, body: Any = BODY, **options: Any) -> Any:
    properties = {"country": "DE", "weight": 1.5, "count": 3, "on": True}
    received = message(body, properties=properties, message_id="m-7", subject="order")
    return edited({"transform": {"expression": expression, **options}}, received)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a", "10.10"),
        ("b", "1E+400"),
        ("big", "12345678901234567890123"),
        ("z", "[-0,0,-0.0]"),
        ("l[?@ > `1.5`]", "[2.5]"),
        ("a == `10.1`", "true"),
        ("a > s", None),
        ("{x: o.p.q, y: s}", '{"x":1,"y":"Text"}'),
        ("type(a)", '"number"'),
        ("to_string(a)", '"10.10"'),
        ("to_string(l)", '"[1,2.5]"'),
        ("to_number('1.50')", "1.50"),
        ("to_number('1e999999999999999999999')", None),
        ("to_number('NaN')", None),
        ("to_number('[1]')", None),
        ("to_number(s)", None),
        ("sum([a, big])", "12345678901234567890133.10"),
        ("sum(`[]`)", "0"),
        ("avg(l)", "1.75"),
        ("avg(`[]`)", None),
        ("ceil(a)", "11"),
        ("floor(`-0.5`)", "-1"),
        ("floor(b)", "1E+400"),
        ("abs(`-2.50`)", "2.5"),
        ("max(l)", "2.5"),
        ("sort_by([{k: a}, {k: `1`}], &k)[*].k", "[1,10.10]"),
        ("add(a, `1`)", "11.10"),
        ("subtract(big, `1`)", "12345678901234567890122"),
        ("multiply(a, `3`)", "30.30"),
        ("divide(`1`, `3`)", "0.3333333333333333333333333333333333"),
        ("divide(`1000`, `10`)", "100"),
        ("round(`2.345`, `2`)", "2.34"),
        ("round(a, `5`)", "10.10"),
        ("omit(@, ['a', 'b', 'big', 'n', 'l', 'o', 'z'])", '{"s":"Text","t":true}'),
        ("items(o)", '[["p",{"q":1}]]'),
        ("from_items(items(o))", '{"p":{"q":1}}'),
        ("flatten({o: o, l: l, e: `{}`}, '/')", '{"o/p/q":1,"l/0":1,"l/1":2.5,"e":{}}'),
        ("[lower(s), upper(s), trim(' x ')]", '["text","TEXT","x"]'),
        ("split(s, 'e')", '["T","xt"]'),
        ("replace(s, 'T', 'n')", '"next"'),
        ("property('COUNTRY')", '"DE"'),
        ("[property('weight'), property('count'), property('on')]", "[1.5,3,true]"),
        ("property('sys.MessageId')", '"m-7"'),
        ("property('sys.label')", '"order"'),
        ("property('none')", None),
    ],
)
def test_an_expression_computes_the_new_body(expression: str, expected: str | None) -> None:
    result = made(expression)
    if expected is None:
        assert result.reasons == ["NothingFound: transform: the result is null, expected a value"]
    else:
        assert result.message.text == expected


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("lower(a)", "ExpressionFailed: transform: lower() got number, expected string"),
        ("sum([a, s])", "ExpressionFailed: transform: sum() got string, expected array-number"),
        ("join(',', l)", "ExpressionFailed: transform: join() got number, expected array-string"),
        ("contains(s, `1`)", "transform: the expression cannot be evaluated for this body (TypeError)"),
        ("divide(a, `0`)", "transform: the expression cannot be evaluated for this body (DivisionByZero)"),
        ("round(a, `-1`)", "ExpressionFailed: transform: round() got an invalid number of places, expected"),
        ("from_items([[`1`, `2`]])", "from_items() got an item that is not a pair of a string and a value"),
        ("property(s)", None),
        ("property('sys.Nothing')", "property() got the name of an unknown broker property"),
        ("&a", "NotWritable: transform: the result has a value that JSON cannot represent"),
    ],
)
def test_an_expression_that_fails_is_reported_without_quoting_the_body(expression: str, reason: str | None) -> None:
    result = made(expression)
    assert [str(outcome) for outcome in result.outcomes] == ["rejected"]
    assert reason is None or reason in result.reasons[0]
    assert "Text" not in result.reasons[0]


@pytest.mark.parametrize("expression", ["to_string(@) == 'x'", "@ == @", "flatten(@, '.')", "sum(@[])", "[] | [*][*]"])
def test_a_deeply_nested_body_is_transformed_or_rejected(expression: str) -> None:
    body = b"[" * 4000 + b"]" * 4000
    assert len(made(expression, body).outcomes) == 1


def test_flattened_names_are_limited_in_length() -> None:
    level = '{"' + "n" * 20_000 + '":'
    body = level * 90 + "[" + ",".join("1" * 200) + "]" + "}" * 90
    assert made("flatten(@, '.')", body).reasons[0].startswith("ResultTooLarge: transform: the names of a flattened")


def test_a_number_of_a_billion_digits_is_not_written_out() -> None:
    whole = made("[ceil(@), floor(@), abs(@)]", b"1E999999999").message
    assert whole.text == "[1E+999999999,1E+999999999,1E+999999999]"


def test_the_content_type_stays_unless_the_options_set_another() -> None:
    for options, expected in (({}, "text/json; charset=utf-8"), ({"content_type": "application/a"}, "application/a")):
        received = message({"a": 1}, content_type="text/json; charset=utf-8")
        assert edited({"transform": {"expression": "a", **options}}, received).message.content_type == expected


@pytest.mark.parametrize("kind", [string, lambda text: binary(text.encode())])
def test_an_amqp_value_body_stays_an_amqp_value(kind: Callable[..., Value]) -> None:
    received = message()
    received.sections.body = b"\x00\x53\x77" + encode(kind('{"a": 1}'))
    sent = edited({"transform": {"expression": "@"}}, received).message
    assert sent.raw.sections.body == b"\x00\x53\x77" + encode(kind('{"a":1}'))


def test_null_is_withheld_or_written_as_configured() -> None:
    assert made("none", on_null="drop").reasons == ["transform: the result is null"]
    assert made("none", on_null="write").message.text == "null"


def test_only_the_body_changes() -> None:
    received = message({"a": 1}, properties={"p": 1}, session_id="s", partition_key="s")
    received.sections.footer = b"\x00\x53\x78\xc1\x01\x00"
    sent = edited({"transform": {"expression": "{b: a}"}}, received).message
    assert (sent.message_id, sent.session_id, sent.partition_key, sent.properties) == ("m-1", "s", "s", {"p": 1})
    assert sent.raw.sections.footer == received.sections.footer
    assert json.loads(sent.text) == {"b": 1}
