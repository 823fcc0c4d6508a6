"""The reduce editor: paths, what they keep and drop, and flat bodies."""

import json
from typing import Any

import pytest

from shared.testing import edited, message

ORDER = {
    "id": "7",
    "customer": {"name": "Ada", "address": {"city": "Bonn", "zip.code": "53111"}},
    "lines": [{"sku": "a", "price": 1}, {"sku": "b"}, 5],
    "note": None,
    "tags": [],
}


def left(body: Any = ORDER, **options: Any) -> Any:
    return json.loads(edited({"reduce": options}, message(body)).message.text)


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (["id"], {"id": "7"}),
        (["customer.name", "id"], {"id": "7", "customer": {"name": "Ada"}}),
        (["customer", "customer.name"], {"customer": ORDER["customer"]}),
        (['customer.address."zip.code"'], {"customer": {"address": {"zip.code": "53111"}}}),
        (["lines[].price"], {"lines": [{"price": 1}, {}, {}]}),
        (["lines[]"], {"lines": ORDER["lines"]}),
        (["lines.price", "id[]", "none.at.all"], {}),
        (["note"], {"note": None}),
    ],
)
def test_keeps_what_is_listed(keep: Any, expected: Any) -> None:
    assert left(keep=keep) == expected


@pytest.mark.parametrize(
    ("drop", "expected"),
    [
        (["customer", "lines", "note"], {"id": "7", "tags": []}),
        (["lines[].sku", "customer.address", "none.at", "id.x", "id[]"], {
            **ORDER, "lines": [{"price": 1}, {}, 5], "customer": {"name": "Ada"}}),
        (["lines[]"], {**ORDER, "lines": []}),
    ],
)  # fmt: skip
def test_drops_what_is_listed(drop: Any, expected: Any) -> None:
    assert left(drop=drop) == expected


def test_an_array_is_reduced_item_by_item() -> None:
    assert left([{"a": 1, "b": 2}, 3], keep=["[].a"]) == [{"a": 1}, {}]
    assert left([{"a": 1}], keep=["a"]) == []


def test_drops_empty_values() -> None:
    body = {"a": None, "b": "", "c": [], "d": {"e": {"f": None}}, "g": [None, {"h": None}], "i": 0, "j": False}
    assert left(body, drop_nulls=True) == {"b": "", "c": [], "d": {"e": {}}, "g": [None, {}], "i": 0, "j": False}
    assert left(body, drop_nulls=True, drop_empty=True) == {"g": [None, {}], "i": 0, "j": False}


def test_flattens() -> None:
    assert left(keep=["customer", "lines"], flatten="_") == {
        "customer_name": "Ada",
        "customer_address_city": "Bonn",
        "customer_address_zip.code": "53111",
        "lines_0_sku": "a",
        "lines_0_price": 1,
        "lines_1_sku": "b",
        "lines_2": 5,
    }
    assert left({}, flatten=".") == {}
    assert left([], flatten=".") == {}
    assert left([[]], flatten=".") == {"0": []}


@pytest.mark.parametrize(
    ("body", "options", "reason"),
    [
        (b"5", {"keep": ["a"]}, "NothingToReduce: reduce: the body is a single value"),
        (b'{"a.b": 1, "a": {"b": 2}}', {"flatten": "."}, "NameTwice: reduce: two values have the same name"),
        (b'{"a":' * 150 + b"1" + b"}" * 150, {"flatten": "."}, "NestedTooDeeply: reduce: the body is nested deeper"),
        (b'{"a":' * 3000 + b"1" + b"}" * 3000, {"drop_nulls": True}, "NestedTooDeeply: reduce: the body is nested too"),
        (b"{", {"keep": ["a"]}, "NotJson: reduce: body is not JSON"),
    ],
)
def test_a_body_that_cannot_be_reduced_is_rejected(body: bytes, options: dict[str, Any], reason: str) -> None:
    (problem,) = edited({"reduce": options}, message(body)).reasons
    assert problem.startswith(reason)


def test_numbers_keep_every_digit() -> None:
    body = b'{"a":[10.10,1E400,12345678901234567890123],"b":null}'
    assert edited({"reduce": {"drop_nulls": True}}, message(body)).message.text == (
        '{"a":[10.10,1E+400,12345678901234567890123]}'
    )
