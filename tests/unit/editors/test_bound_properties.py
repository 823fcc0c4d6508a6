"""The canonical form that signatures and encryption bind: distinct for distinct values, and never ambiguous."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.amqp.codec import encode
from shared.amqp.map_section import AmbiguousName
from shared.amqp.values import Malformed, Value, long
from shared.editors.protection.bound_properties import canonical_form, canonical_form_of_all, digest
from shared.journal.canonical import canonical
from shared.rules.decimals import decimal_of, decimal_value
from tests.messages import message


def test_two_properties_whose_names_differ_only_in_case_cannot_be_bound() -> None:
    received = message(named={"amount": long(5), "Amount": long(5000)})
    with pytest.raises(AmbiguousName, match="two properties are named amount"):
        digest(["amount"], received)
    with pytest.raises(AmbiguousName, match="named amount"):
        canonical_form_of_all(received)
    assert canonical_form(["other"], received) == b'[["other","null",null]]'


KINDS = [("decimal32", 0x74, 4), ("decimal64", 0x84, 8), ("decimal128", 0x94, 16)]


def of_any_bytes(kind: tuple[str, int, int]) -> st.SearchStrategy[tuple[str, Value]]:
    name, code, width = kind
    return st.binary(min_size=width, max_size=width).map(lambda content: (name, Value(code, content)))


def of_integer(number: int) -> tuple[str, Value]:
    return "decimal128", decimal_value("decimal128", Decimal(number))


decimals = st.sampled_from(KINDS).flatmap(of_any_bytes) | st.integers(-(10**34) + 1, 10**34 - 1).map(of_integer)


@given(decimals, decimals)
def test_different_decimals_have_different_bound_forms(one: Any, other: Any) -> None:
    (kinds, values), forms = zip(one, other, strict=True), []
    for value in values:
        form = canonical_form(["a"], message(named={"a": value}))
        encoding = encode(value)
        forms.append((form, canonical(encoding, 0, len(encoding))))
    numbers = [decimal_of(kind, value.payload) for kind, value in zip(kinds, values, strict=True)]
    # One number in two encodings that are not canonical may have two forms; two numbers never have one.
    for first, second in zip(*forms, strict=True):
        assert first != second or values[0] == values[1] or numbers[0] == numbers[1]


def test_decimals_that_differ_only_in_the_34th_digit_have_different_bound_forms() -> None:
    one, other = (decimal_value("decimal128", Decimal(123456789012345678901234567890123 * 10 + n)) for n in (0, 1))
    assert digest(["a"], message(named={"a": one})) != digest(["a"], message(named={"a": other}))
    same = [decimal_value("decimal128", Decimal(text)) for text in ("5", "5.00")]
    assert len({digest(["a"], message(named={"a": value})) for value in same}) == 1


def test_broker_property_that_is_no_text_rejects_the_message() -> None:
    damaged = message(1)
    damaged.sections.properties = damaged.sections.properties.replace(b"m-1", b"m-\xff")
    with pytest.raises(Malformed):
        digest(("sys.MessageId",), damaged)
