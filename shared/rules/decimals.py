"""
IEEE 754 decimals, binary integer significand, as Python decimals and back.

Source: IEEE 754-2008, 3.5.2; OASIS AMQP 1.0, part 1, sections 1.6.13 to 1.6.15.
"""

from decimal import ROUND_HALF_EVEN, Context, Decimal, DivisionByZero, Inexact, InvalidOperation, Overflow
from typing import NamedTuple

from shared.amqp.values import Value


class _Format(NamedTuple):
    """Bits of the exponent field, its bias, and the digits of the significand."""

    code: int
    width: int
    exponent_bits: int
    bias: int
    digits: int


_FORMATS = {
    "decimal32": _Format(0x74, 32, 8, 101, 7),
    "decimal64": _Format(0x84, 64, 10, 398, 16),
    "decimal128": _Format(0x94, 128, 14, 6176, 34),
}

# The five bits after the sign; from the last of these values on, the significand has an implied start.
_NAN, _INFINITY, _LONG_SIGNIFICAND = 0b11111, 0b11110, 0b11000

# For results of two decimals: as wide as the widest; everything except rounding raises.
_FAULTS = [InvalidOperation, Overflow, DivisionByZero]
ARITHMETIC = Context(prec=34, rounding=ROUND_HALF_EVEN, Emin=-6143, Emax=6144, clamp=1, traps=_FAULTS)

# Python's own context would round to 28 digits.
_EXACT = Context(prec=34, Emin=-9999, Emax=9999, traps=[InvalidOperation, Inexact])


def decimal_of(kind: str, payload: bytes) -> Decimal:
    """Return the number in *payload*; an infinity or NaN as the Decimal of that name."""
    layout = _FORMATS[kind]
    bits = int.from_bytes(payload)
    sign = bits >> (layout.width - 1)
    combination = bits >> (layout.width - 6) & 0b11111
    if combination == _NAN:
        return Decimal("NaN")
    if combination == _INFINITY:
        return Decimal("-Infinity" if sign else "Infinity")
    if combination >= _LONG_SIGNIFICAND:
        # The significand starts with an implied 100 and the exponent stands two bits further right.
        significand_bits = layout.width - layout.exponent_bits - 3
        significand = 0b100 << significand_bits | bits & (1 << significand_bits) - 1
    else:
        significand_bits = layout.width - layout.exponent_bits - 1
        significand = bits & (1 << significand_bits) - 1
    exponent = (bits >> significand_bits) & (1 << layout.exponent_bits) - 1
    if significand >= 10**layout.digits:
        significand = 0  # not canonical, and the standard reads it as zero
    digits = tuple(map(int, str(significand)))
    return Decimal((sign, digits, exponent - layout.bias))


def exact_text(kind: str, payload: bytes) -> str:
    """
    Return one text for each number, without rounding: equal numbers of any width and exponent have the same.

    A NaN, an infinity and a number that is not in its canonical encoding, which two readers may understand
    differently, have their bytes in hexadecimal digits.
    """
    number = decimal_of(kind, payload)
    if number.is_finite() and decimal_value(kind, number).payload == payload:
        return str(_EXACT.normalize(number))
    return payload.hex()


def decimal_value(kind: str, number: Decimal) -> Value:
    """Return *number* as a decimal of *kind*; a ValueError where it would be rounded or does not fit."""
    layout = _FORMATS[kind]
    # The largest exponent of the significand as an integer; clamping pads zeros instead of exceeding it.
    largest = (1 << layout.exponent_bits) * 3 // 4 - 1 - layout.bias
    least, most = layout.digits - 1 - layout.bias, largest + layout.digits - 1
    context = Context(layout.digits, Emin=least, Emax=most, clamp=1, traps=[InvalidOperation, Inexact, Overflow])
    try:
        sign, digits, exponent = context.create_decimal(number).as_tuple()
    except ArithmeticError as error:
        raise ValueError(f"a {kind} has no room for this number") from error
    if not isinstance(exponent, int):
        raise ValueError(f"a {kind} property must be finite")  # noqa: TRY004 - the type is ours, the value is at fault
    significand = int("".join(map(str, digits)))
    biased = exponent + layout.bias
    significand_bits = layout.width - layout.exponent_bits - 1
    if significand < 1 << significand_bits:
        bits = biased << significand_bits | significand
    else:
        significand_bits -= 2
        bits = 0b11 << (layout.width - 3) | biased << significand_bits | significand & (1 << significand_bits) - 1
    bits |= sign << (layout.width - 1)
    return Value(layout.code, bits.to_bytes(layout.width // 8))
