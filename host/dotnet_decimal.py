"""
The conversion of an AMQP decimal128 by Azure's host: System.Decimal and back.

.NET writes the exponent with a shift of 9 where 7 is right, so every decimal leaves the host with a first byte of 0x0c
(negative: 0x8c) where 0x30 (0xb0) is right. It reads its own form back, because it takes the scale modulo 256.
It reads neither decimal32 nor decimal64.

Source: DecimalEncoding (Azure/azure-amqp, Microsoft.Azure.Amqp/Amqp/Encoding/DecimalEncoding.cs, tag v2.7.1).
"""

_BIAS = 6176
_MAX_SCALE = 28
_MAX_SIGNIFICAND = 2**96 - 1
_WIDE_FORM = 0x60  # the bits of the first byte that mark the form for large significands, infinity and NaN


def decimal128(raw: bytes) -> bytes:
    """
    Return the 16 bytes of a decimal128 as .NET writes it; an OverflowError for one that System.Decimal cannot hold.

    As in .NET, the significand is truncated to 96 bits and the scale is taken modulo 256.
    """
    negative = raw[0] & 0x80
    # .NET leaves the exponent of the wide form at zero, which is a scale of 6176 modulo 256.
    is_wide = raw[0] & _WIDE_FORM == _WIDE_FORM
    scale = _BIAS - (0 if is_wide else (raw[0] & 0x7F) << 7 | raw[1] >> 1)
    if scale >= 0:
        scale &= 0xFF
        if scale > _MAX_SCALE:
            raise OverflowError(f"has {scale} decimal places")
        return _encode(negative, scale, raw[4:])
    significand = int.from_bytes(raw[4:]) * 10**-scale
    if significand > _MAX_SIGNIFICAND:
        raise OverflowError("has more than 96 bits")
    return _encode(negative, 0, significand.to_bytes(12))


def _encode(negative: int, scale: int, significand: bytes) -> bytes:
    exponent = _BIAS - scale
    return b"\x94%c%c\0\0%b" % (negative | exponent >> 9, (exponent & 0x7F) << 1, significand)


def text(encoded: bytes) -> str:
    """Return the text of a decimal that `decimal128` returned, as System.Decimal formats it."""
    scale = (_BIAS - ((encoded[1] & 0x7F) << 7 | encoded[2] >> 1)) & 0xFF
    digits = str(int.from_bytes(encoded[5:])).rjust(scale + 1, "0")
    sign = "-" if encoded[1] & 0x80 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else sign + digits
