"""
JSON (RFC 8259), read more strictly than by the standard library, and written with every digit of its numbers.

Rejected is what two readers could understand differently: a byte order mark, NaN and Infinity, duplicate names.
"""

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn, TypeGuard

import msgspec

from shared.errors import MessageRejected

NOT_JSON = "NotJson"
NOT_WRITABLE = "NotWritable"

type Json = dict[str, Json] | list[Json] | str | int | float | bool | None
type ExactJson = dict[str, ExactJson] | list[ExactJson] | str | int | Decimal | bool | None
"""JSON in which -0 and a number with a fraction or an exponent is a Decimal, so that 10.10 and 1E400 are kept."""


def read(content: bytes) -> Json:
    """Return the value in *content*; raises MessageRejected with the position of the error, not quoting the body."""
    value: Json = _read(content, _DECODER)
    return value


def read_exact(content: bytes) -> ExactJson:
    """Return the value in *content* with every digit of its numbers; raises MessageRejected as `read` does."""
    value: ExactJson = _read(content, _SIGNED_ZERO_DECODER if _SIGNED_ZERO.search(content) else _EXACT_DECODER)
    return value


def _read(content: bytes, decoder: json.JSONDecoder) -> Any:  # noqa: ANN401 - the type depends on the decoder
    try:
        return decoder.decode(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        text = f"body is not UTF-8 at byte {error.start}, expected JSON in UTF-8{form_of(content)}"
        raise MessageRejected(NOT_JSON, text) from error
    except json.JSONDecodeError as error:
        # The text after a colon may quote the body.
        problem = f"line {error.lineno} column {error.colno}: {error.msg.partition(':')[0].lower()}"
        raise MessageRejected(NOT_JSON, f"body is not JSON, {problem}{form_of(content)}") from error
    except RecursionError as error:
        raise MessageRejected(NOT_JSON, "body is JSON nested too deeply to be read") from error
    except (ValueError, InvalidOperation) as error:
        # The only remaining cause: a number with thousands of digits, or with such an exponent.
        raise MessageRejected(NOT_JSON, "body is JSON with a number too long to be read") from error


def _refuse_constant(name: str) -> NoReturn:
    raise MessageRejected(NOT_JSON, f"body is not JSON, which has no number {name}")


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise MessageRejected(NOT_JSON, "body is JSON with a duplicate name in an object")
    return found


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_object)
_EXACT_DECODER = json.JSONDecoder(parse_float=Decimal, parse_constant=_refuse_constant, object_pairs_hook=_object)
# An int has no -0. With a function for each number, a list of numbers takes three times as long.
_SIGNED_ZERO = re.compile(rb"-0(?![\d.eE])")
_SIGNED_ZERO_DECODER = json.JSONDecoder(
    parse_int=lambda text: Decimal(text) if text == "-0" else int(text),
    parse_float=Decimal,
    parse_constant=_refuse_constant,
    object_pairs_hook=_object,
)

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


_NET = (b"http://schemas.microsoft.com/2003/10/Serialization/", b"http://schemas.datacontract.org/")
_SEARCHED = 512
_HEAD = 5


def form_of(content: bytes) -> str:
    """Return the end of a sentence about a body that cannot be read, empty if its form is not known."""
    if content[:1] == b"@" and any(each in content[:_SEARCHED] for each in _NET):
        return (
            "; it begins as the DataContractSerializer of .NET writes it: let the sender pass a stream or bytes to"
            " BrokeredMessage"
        )
    if content[:1] == b"\x00" and len(content) > _HEAD:
        return (
            "; it begins with 00 and four bytes, as serializers of Confluent write the id of a schema: let an editor"
            " python remove these five bytes"
        )
    return ""
