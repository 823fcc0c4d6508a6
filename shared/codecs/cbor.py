"""
CBOR (RFC 8949): one data item that is the whole body.

Accepted tags: times, large integers, decimal fractions, UUIDs, and the one that marks CBOR. Other tags are rejected:
those that turn few bytes into many (shared values and texts) and those that are not data (expressions, mails). A map
with a duplicate key or a key that is not text is rejected too, and `undefined`. A Decimal is written as a decimal
fraction, an integer of more than 64 bits as a bignum.
"""

from functools import partial
from io import BytesIO

import cbor2

from shared.codecs.plain import DEEPEST, Plain, as_text, check_names, not_writable
from shared.errors import MessageRejected

NOT_CBOR = "NotCbor"

# Numbers of the IANA registry of tags: bigfloat, references to texts and to values, rationals, expressions, mails,
# sets, addresses and complex numbers.
_REFUSED = (5, 25, 28, 29, 30, 35, 36, 52, 54, 256, 258, 260, 261, 43000)


# About as many digits as Python's int() accepts in a text.
_LONGEST_BIGNUM = 1700


class _RefusedTag(Exception):
    """A tag that is not supported."""


class _TooLong(Exception):
    """An integer whose digits would take too long."""


class Cbor:
    """CBOR, `application/cbor`."""

    name = "cbor"
    media_type = "application/cbor"

    def claims(self, media_type: str) -> bool:
        """Return whether a media type is of CBOR (RFC 8949, section 9.5)."""
        return media_type == "application/cbor" or media_type.endswith("+cbor")

    def read(self, content: bytes) -> Plain:
        """Return the value in *content*; raises MessageRejected."""
        decoder = _decoder(BytesIO(content))
        try:
            value = decoder.decode()
        except cbor2.CBORDecodeEOF as error:
            raise MessageRejected(NOT_CBOR, "body is CBOR that is cut off") from error
        except cbor2.CBORDecodeError as error:
            # The library's text quotes the body.
            if isinstance(error.__cause__, _RefusedTag):
                raise MessageRejected(NOT_CBOR, "body is CBOR with an unsupported tag") from error
            if isinstance(error.__cause__, _TooLong):
                raise MessageRejected(NOT_CBOR, f"body has an integer of more than {_LONGEST_BIGNUM} bytes") from error
            problem = "body is not CBOR, is nested too deeply, or has a map with a duplicate key"
            raise MessageRejected(NOT_CBOR, problem) from error
        try:
            decoder.read(1)
        except cbor2.CBORDecodeEOF:
            check_names(value)
            return value
        raise MessageRejected("TrailingBytes", "body has bytes after the end of its CBOR")

    def write(self, value: Plain) -> bytes:
        """Return *value* as CBOR."""
        try:
            return _written(value)
        except (ValueError, TypeError, OverflowError) as error:
            raise not_writable(value, _written, error, "CBOR") from error


def _refuse(*_: object) -> None:
    raise _RefusedTag


def _bignum(sign: int, content: object, *_: object) -> int:
    """Return the integer that the bytes of a bignum are; its decimal digits take quadratic time."""
    if not isinstance(content, bytes):
        raise _RefusedTag
    if len(content) > _LONGEST_BIGNUM:
        raise _TooLong
    number = int.from_bytes(content)
    return number if sign > 0 else -1 - number


def _default(encoder: cbor2.CBOREncoder, value: object) -> None:
    encoder.encode(as_text(value))


_BIGNUMS = {2: partial(_bignum, 1), 3: partial(_bignum, -1)}
_decoder = partial(
    cbor2.CBORDecoder,
    allow_duplicate_keys=False,
    max_depth=DEEPEST,
    semantic_decoders={**dict.fromkeys(_REFUSED, _refuse), **_BIGNUMS},
    tag_hook=_refuse,
)
_written = partial(cbor2.dumps, default=_default)
