"""JSON as RFC 8259 has it, written with every digit of its numbers."""

from decimal import Decimal

import msgspec

from shared.codecs.json import ExactJson
from shared.errors import MessageRejected

NOT_WRITABLE = "NotWritable"

# The standard library writes a Decimal as a float or not at all.
_ENCODER = msgspec.json.Encoder(decimal_format="number")


def write(value: ExactJson) -> bytes:
    """Return the text of *value*, without white space; raises MessageRejected for what JSON cannot say."""
    try:
        return _ENCODER.encode(value)
    except RecursionError as error:
        raise MessageRejected(NOT_WRITABLE, "the result is nested too deeply to be written as JSON") from error
    except UnicodeEncodeError:
        # Its text quotes the string.
        told = "the result has half a character (a lone surrogate) in a text, which UTF-8 cannot encode"
        raise MessageRejected(NOT_WRITABLE, told) from None
    except (TypeError, ValueError) as error:
        # An integer with thousands of digits, or what is no JSON at all.
        raise MessageRejected(NOT_WRITABLE, "the result has a value that JSON cannot represent") from error


def is_number(value: object) -> bool:
    """Tell whether *value* is what JSON calls a number."""
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)
