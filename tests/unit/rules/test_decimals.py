from decimal import Decimal

import pytest

from shared.rules.decimals import decimal_of, decimal_value


@pytest.mark.parametrize(
    ("kind", "text", "encoded"),
    [
        ("decimal32", "0", "32800000"),
        ("decimal32", "1", "32800001"),
        ("decimal32", "-7.50", "b18002ee"),
        ("decimal32", "9999999", "6cb8967f"),
        ("decimal64", "1", "31c0000000000001"),
        ("decimal64", "9999999999999999", "6c7386f26fc0ffff"),
        ("decimal128", "1", "30400000000000000000000000000001"),
        ("decimal128", "-0.1", "b03e0000000000000000000000000001"),
        ("decimal128", "9999999999999999999999999999999999", "3041ed09bead87c0378d8e63ffffffff"),
    ],
)
def test_known_decimals_are_encoded_and_decoded(kind: str, text: str, encoded: str) -> None:
    assert decimal_value(kind, Decimal(text)).payload == bytes.fromhex(encoded)
    assert str(decimal_of(kind, bytes.fromhex(encoded))) == text


@pytest.mark.parametrize(
    ("encoded", "name"),
    [("78000000", "Infinity"), ("f8000000", "-Infinity"), ("7c000000", "NaN"), ("6cffffff", "0E+2")],
)
def test_infinity_and_nan_are_decoded(encoded: str, name: str) -> None:
    assert str(decimal_of("decimal32", bytes.fromhex(encoded))) == name


@pytest.mark.parametrize("text", ["12345678", "1E+97", "1E-102", "Infinity", "NaN"])
def test_a_number_that_the_decimal_type_cannot_hold_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="decimal32"):
        decimal_value("decimal32", Decimal(text))
