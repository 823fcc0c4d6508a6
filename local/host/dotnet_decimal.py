# ruff: noqa: PLR2004 - format codes and widths of the AMQP specification; a name for each would hide the table
"""
The conversion of an AMQP decimal by Azure's host: System.Decimal and back, always as decimal128.

Source: DecimalEncoding (Azure/azure-amqp, src/Encoding/DecimalEncoding.cs, commit b8d2ac0acc00).
"""

from typing import NamedTuple

_BIAS = 6176
_MAX_SCALE = 28
_MAX_SIGNIFICAND = 2**96 - 1


class _Layout(NamedTuple):
    """The layout of a decimal: exponent bias, width in bits of the significand in the usual form."""

    bias: int
    significand_bits: int


_LAYOUTS = {0x74: _Layout(101, 23), 0x84: _Layout(398, 53), 0x94: _Layout(_BIAS, 113)}


def decimal128(raw: bytes) -> bytes:
    """
    Return the decimal as .NET writes it; an OverflowError for one that System.Decimal cannot hold.

    As in .NET, the significand is truncated to 96 bits and the scale is taken modulo 256.
    """
    layout = _LAYOUTS[raw[0]]
    bits = int.from_bytes(raw[1:])
    width = 8 * (len(raw) - 1)
    sign = bits >> (width - 1)
    exponent_bits = width - 1 - layout.significand_bits
    is_wide = bits >> (width - 3) & 0b11 == 0b11
    if is_wide and bits >> (width - 5) & 0b1111 == 0b1111:
        raise OverflowError("is infinite or not a number")
    if is_wide:
        exponent = bits >> (layout.significand_bits - 2) & (2**exponent_bits - 1)
        significand = bits & (2 ** (layout.significand_bits - 2) - 1) | 0b100 << (layout.significand_bits - 2)
        if raw[0] == 0x94:  # .NET does not read the wide form of decimal128
            return _encode(0, 0, 0)
    else:
        exponent = bits >> layout.significand_bits & (2**exponent_bits - 1)
        significand = bits & (2**layout.significand_bits - 1)
    significand &= _MAX_SIGNIFICAND
    scale = layout.bias - exponent
    if scale >= 0:
        scale &= 0xFF
        if scale > _MAX_SCALE:
            raise OverflowError(f"has {scale} decimal places")
        return _encode(sign, scale, significand)
    significand *= 10**-scale
    if significand > _MAX_SIGNIFICAND:
        raise OverflowError("has more than 96 bits")
    return _encode(sign, 0, significand)


def _encode(sign: int, scale: int, significand: int) -> bytes:
    return b"\x94" + (sign << 127 | (_BIAS - scale) << 113 | significand).to_bytes(16)
