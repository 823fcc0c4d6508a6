"""
JSON as RFC 8259 has it.

Stricter than Python's own reader where two readers of one text could see different things: UTF-8 without a byte order
mark, no NaN or Infinity, no name twice in one object.
"""

import json
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn

from shared.errors import MessageRejected

NOT_JSON = "NotJson"

type Json = dict[str, Json] | list[Json] | str | int | float | bool | None
type ExactJson = dict[str, ExactJson] | list[ExactJson] | str | int | Decimal | bool | None
"""JSON in which a number that is no integer is a Decimal, so that 10.10 and 1E400 stay what they are."""


def read(content: bytes) -> Json:
    """Return what *content* says; raises MessageRejected with the place of the fault, and nothing of what is there."""
    value: Json = _read(content, _DECODER)
    return value


def read_exact(content: bytes) -> ExactJson:
    """Return what *content* says with every digit of its numbers; raises MessageRejected as `read` does."""
    value: ExactJson = _read(content, _EXACT_DECODER)
    return value


def _read(content: bytes, decoder: json.JSONDecoder) -> Any:  # noqa: ANN401 - what the decoder is made for
    try:
        return decoder.decode(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise MessageRejected(NOT_JSON, f"body is not UTF-8 at byte {error.start}, expected JSON in UTF-8") from error
    except json.JSONDecodeError as error:
        # Of Python's words those before a colon, such as "Expecting value": behind one it may quote.
        told = f"line {error.lineno} column {error.colno}: {error.msg.partition(':')[0].lower()}"
        raise MessageRejected(NOT_JSON, f"body is not JSON, {told}") from error
    except RecursionError as error:
        raise MessageRejected(NOT_JSON, "body is JSON nested too deeply to be read") from error
    except (ValueError, InvalidOperation) as error:
        # Of all that is left, only a number with thousands of digits, also in its exponent.
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
