"""
The validator of JSON Schema 2020-12 with exact numbers, and schemas as it reads them.

1. A number with a fraction or an exponent is a Decimal, in schema and body: 4.02 is a multiple of 0.01.
2. Patterns are those of ECMA-262, translated when the schema is read.
3. A schema has no `$schema` any more, with which the library would go on with its own validator.
"""

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.protocols import Validator
from jsonschema.validators import create
from referencing.jsonschema import DRAFT202012

from shared.codecs.json import ExactJson
from shared.editors.content.ecma_patterns import NotAPattern, python_pattern

type Schema = Any

# Keywords whose value has schemas by name, and those whose value is no schema.
_BY_NAME = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_VALUES = frozenset(("const", "default", "enum", "examples"))
_MOST_DIGITS = 4300
"""Digits of a number; Python reads no longer whole numbers either."""

_VOCABULARY = "https://json-schema.org/draft/2020-12/vocab/"
_ASSERTIONS = frozenset(
    (
        *("type", "const", "enum", "multipleOf", "maximum", "exclusiveMaximum", "minimum", "exclusiveMinimum"),
        *("maxLength", "minLength", "pattern", "maxItems", "minItems", "uniqueItems", "maxProperties"),
        *("minProperties", "required", "dependentRequired"),
    )
)
_UNEVALUATED = frozenset(("unevaluatedItems", "unevaluatedProperties"))
_CORE = frozenset(("$ref", "$dynamicRef"))
_ANNOTATIONS = frozenset(("meta-data", "format-annotation", "content", "format-assertion"))
"""Vocabularies without which, and with which, the same is valid: `format` rejects nothing."""


class UnknownVocabulary(ValueError):
    """A dialect requires a vocabulary that nobody knows here."""


@lru_cache(maxsize=16)
def validator_of(vocabularies: frozenset[str] | None = None) -> type[Validator]:
    """Return the validator for schemas of these *vocabularies*, None for all of draft 2020-12."""
    keywords = {**Draft202012Validator.VALIDATORS, "multipleOf": _multiple_of, "uniqueItems": _unique_items}
    if vocabularies is not None:
        keywords = {name: keyword for name, keyword in keywords.items() if _vocabulary(name) in {*vocabularies, "core"}}
    types = Draft202012Validator.TYPE_CHECKER.redefine_many({"number": _is_number, "integer": _is_integer})
    meta_schema, id_of = Draft202012Validator.META_SCHEMA, cast("Any", DRAFT202012.id_of)
    return create(meta_schema, keywords, type_checker=types, id_of=id_of)


def vocabularies_of(dialect: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the vocabularies of a *dialect*, a schema of schemas; raises UnknownVocabulary."""
    found = set()
    for address, is_required in dialect.get("$vocabulary", {}).items():
        name = str(address).removeprefix(_VOCABULARY)
        if name in _ANNOTATIONS or name in {"core", "applicator", "unevaluated", "validation"}:
            found.add(name)
        elif is_required:
            raise UnknownVocabulary(f"requires the vocabulary {address}, expected one of draft 2020-12")
    return frozenset(found)


def _vocabulary(keyword: str) -> str:
    if keyword in _ASSERTIONS:
        return "validation"
    if keyword in _UNEVALUATED:
        return "unevaluated"
    return "core" if keyword in _CORE else "applicator"


def readable(schema: Schema, on_pattern: Callable[[str, str], None], path: str = "$") -> Schema:
    """
    Return *schema* as the validator reads it; *on_pattern* gets the path and the text of each pattern.

    Raises: NotAPattern.
    """
    if isinstance(schema, list):
        return [readable(each, on_pattern, f"{path}[{number}]") for number, each in enumerate(schema)]
    if not isinstance(schema, dict):
        return schema
    made: dict[str, Schema] = {}
    for key, value in schema.items():
        here = f"{path}.{key}"
        if key == "$schema":
            continue
        if key == "pattern" and isinstance(value, str):
            on_pattern(here, value)
            made[key] = _translated(value, here)
        elif key in _BY_NAME and isinstance(value, dict):
            made[key] = {}
            for name, inner in value.items():
                if key == "patternProperties":
                    on_pattern(here, name)
                    ours = _translated(name, here)
                    while ours in made[key]:
                        ours += "(?:)"  # two patterns may be one in Python
                    made[key][ours] = readable(inner, on_pattern, f"{here}[{name!r}]")
                else:
                    made[key][name] = readable(inner, on_pattern, f"{here}.{name}")
        else:
            made[key] = value if key in _VALUES else readable(value, on_pattern, here)
    return made


def _translated(pattern: str, path: str) -> str:
    try:
        return python_pattern(pattern)
    except NotAPattern as error:
        raise NotAPattern(f"{path}: {pattern!r} {error}") from error


def _is_number(_: object, value: object) -> bool:
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def _is_integer(checker: object, value: object) -> bool:
    if isinstance(value, Decimal):
        _, digits, exponent = value.as_tuple()
        return isinstance(exponent, int) and (exponent >= 0 or not any(digits[exponent:]))
    return _is_number(checker, value) and (isinstance(value, int) or float(value).is_integer())  # type: ignore[arg-type]


def _multiple_of(_: Validator, divisor: int | Decimal, instance: ExactJson, __: Schema) -> Iterator[ValidationError]:
    if isinstance(instance, int | Decimal) and not isinstance(instance, bool) and not _is_multiple(instance, divisor):
        yield ValidationError("is not a multiple")


def _is_multiple(number: int | Decimal, divisor: int | Decimal) -> bool:
    """Return whether *number* is a whole number of times *divisor*, whatever their exponents."""
    (value, exponent), (unit, unit_exponent) = _whole(number), _whole(divisor)
    zeros = exponent - unit_exponent
    if zeros >= 0:
        return value % unit * pow(10, zeros, unit) % unit == 0
    # The number itself must end with as many zeros as it has digits more behind the point than the divisor.
    return value == 0 or (-zeros <= _MOST_DIGITS and value % (unit * 10**-zeros) == 0)


def _whole(number: int | Decimal) -> tuple[int, int]:
    """Return a whole number, and the power of ten by which it is to be multiplied; raises OverflowError."""
    if isinstance(number, int):
        return number, 0
    _, digits, exponent = number.as_tuple()
    if len(digits) > _MOST_DIGITS or not isinstance(exponent, int):
        raise OverflowError
    return int("".join(map(str, digits))), exponent


def _unique_items(_: Validator, is_wanted: object, instance: ExactJson, __: Schema) -> Iterator[ValidationError]:
    if is_wanted and isinstance(instance, list) and len({_hashable(each) for each in instance}) < len(instance):
        yield ValidationError("has equal items")


def _hashable(value: ExactJson) -> object:
    """Return what is equal for equal values, and different for 1 and true."""
    match value:
        case bool() | None | str():
            return type(value), value
        case dict():
            return frozenset((name, _hashable(each)) for name, each in value.items())
        case list():
            return tuple(map(_hashable, value))
    return value
