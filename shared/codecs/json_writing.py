"""JSON (RFC 8259), written with every digit of its numbers."""

from decimal import Decimal
from typing import TypeGuard

import msgspec

from shared.codecs.json import ExactJson
from shared.errors import MessageRejected

NOT_WRITABLE = "NotWritable"

# The standard library writes a Decimal as a float or not at all.
_ENCODER = msgspec.json.Encoder(decimal_format="number")


def write(value: ExactJson) -> bytes:
    """Return the text of *value*, without white space; raises MessageRejected for values that JSON does not have."""
    try:
        return _ENCODER.encode(value)
    except RecursionError as error:
        raise MessageRejected(NOT_WRITABLE, "the result is nested too deeply to be written as JSON") from error
    except UnicodeEncodeError:
        # The text of the error quotes the string.
        problem = "the result has half a character (a lone surrogate) in a text, which UTF-8 cannot encode"
        raise MessageRejected(NOT_WRITABLE, problem) from None
    except (TypeError, ValueError) as error:
        # An integer with thousands of digits, or a value of another type.
        raise MessageRejected(NOT_WRITABLE, "the result has a value that JSON cannot represent") from error


def is_number(value: object) -> TypeGuard[int | Decimal]:
    """Return whether *value* is a JSON number."""
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)
