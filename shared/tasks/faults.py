"""
The faults that pydantic finds, in the words of people who write YAML.

Pydantic's own texts name types of Python and quote patterns; none of them is shown.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import cache
from typing import Any

from pydantic import BaseModel

from shared.errors import Problem
from shared.tasks.models import SETTING, SITE
from shared.tasks.source import NAME

_PATTERNS = {
    NAME: "a letter, then letters, digits, - and _, at most 127 characters",
    SITE: "letters, digits, . - and _, beginning with a letter or digit",
    SETTING: "the name of an app setting: a letter, then letters, digits and _",
}
_CONNECTION_STRING = ("endpoint=", "sharedaccesskey", "accountkey=", "defaultendpointsprotocol=")
_KINDS = {
    "bool": "true or false",
    "date": "a date",
    "datetime": "a time",
    "dict": "a mapping",
    "float": "a number",
    "frozen_set": "a list",
    "int": "a whole number",
    "list": "a list",
    "mapping": "a mapping",
    "model": "a mapping",
    "model_attributes": "a mapping",
    "set": "a list",
    "string": "text",
    "time_delta": "a duration, such as 30s, 5m or PT0.08S",
    "tuple": "a list",
    "url": "an address",
}
_COMPARISONS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}
_REMOVED = {("trigger",): "remove it: the stock trigger was removed, and every task receives encoded messages"}
"""Hints for keys of earlier versions, by their places in a file."""
_SECONDS = {"microseconds": 1e-6, "second": 1, "seconds": 1}
_LENGTHS = {
    "string_too_short": ("min_length", "at least", "character"),
    "string_too_long": ("max_length", "at most", "character"),
    "too_short": ("min_length", "at least", "item"),
    "too_long": ("max_length", "at most", "item"),
}


def problem_of(model: type[BaseModel], where: str, fault: Mapping[str, Any], document: object) -> Problem:
    """Return a fault as a problem at *where*; *document* is what was validated."""
    kind = fault["type"]
    if kind == "extra_forbidden":
        if fault["loc"] in _REMOVED:
            return Problem(where, "unknown key", _REMOVED[fault["loc"]])
        unknown = str(fault["loc"][-1])
        known = [key for key in keys_at(model, fault["loc"][:-1], document) if key.lower() != unknown.lower()]
        near = difflib.get_close_matches(unknown, known, 1)
        return Problem(where, "unknown key", f"did you mean {near[0]!r}?" if near else "")
    if kind == "string_pattern_mismatch" and _is_connection_string(fault["input"]):
        hint = "put the connection string into an app setting, such as WEST, and name that: `setting: WEST`"
        return Problem(where, "is a connection string, expected the name of an app setting", hint)
    return Problem(where, _text(fault))


def joined(problems: Sequence[Problem]) -> list[Problem]:
    """Return *problems* with those of one value that may take several forms as one."""
    found: dict[tuple[str, str], Problem] = {}
    for problem in problems:
        seen, middle, expected = problem.problem.partition(", expected ")
        key = (problem.path, seen if middle else problem.problem)
        first = found.setdefault(key, problem)
        if expected and first.problem != problem.problem:
            found[key] = Problem(problem.path, f"{first.problem} or {expected}", first.hint or problem.hint)
    return list(found.values())


def _text(fault: Mapping[str, Any]) -> str:  # noqa: PLR0911 - one return for each form
    kind, context = fault["type"], fault.get("ctx", {})
    if kind in {"value_error", "assertion_error"}:
        return str(context.get("error", "")) or "is invalid"
    if kind == "missing":
        return "is missing"
    if kind in {"literal_error", "enum"}:
        return f"{_seen(fault['input'])}expected {_choice(str(context['expected']))}"
    if kind == "string_pattern_mismatch":
        pattern = str(context["pattern"])
        # What is no name may be a key.
        seen = "" if pattern == SETTING else _seen(fault["input"])
        return f"{seen}expected {_PATTERNS.get(pattern, f'text that matches {pattern}')}"
    if kind in _COMPARISONS:
        name, words = _COMPARISONS[kind]
        return f"{_seen(fault['input'])}expected {words} {_limit(context[name])}"
    if kind in _LENGTHS:
        name, words, unit = _LENGTHS[kind]
        count = context[name]
        number = "one" if count == 1 else str(count)
        return f"expected {words} {number} {unit}" + ("" if count == 1 else "s")
    if kind in {"union_tag_invalid", "union_tag_not_found"}:
        expected = str(context.get("expected_tags", ""))
        return f"{_seen(fault['input'])}expected " + (f"one of {expected}" if expected else "another form")
    if kind == "finite_number":
        return "expected a finite number"
    if kind == "int_from_float":
        return f"{_seen(fault['input'])}expected a whole number"
    for end in ("_type", "_parsing", "_unicode", "_attributes_type"):
        expected = _KINDS.get(kind.removesuffix(end), "")
        if kind.endswith(end) and expected:
            return f"{_seen(fault['input'])}expected {expected}"
    return f"{_seen(fault['input'])}expected another value"


def _seen(value: object) -> str:
    """Return what was found, in words; text only if it is short and no secret."""
    match value:
        case None:
            return "is empty, "
        case bool():
            return f"is {'true' if value else 'false'}, "
        case int() | float() | timedelta():
            return f"is {f'PT{value.total_seconds():g}S' if isinstance(value, timedelta) else value}, "
        case str() if len(value) <= 60 and not _is_connection_string(value):  # noqa: PLR2004 - a line
            return f"is {value!r}, "
        case str():
            return "is another text, "
        case Mapping():
            return "is a mapping, "
        case list() | tuple():
            return "is a list, "
        case _:
            return ""


def _choice(expected: str) -> str:
    """Return the allowed values as YAML writes them."""
    return expected.replace("True", "true").replace("False", "off")


def _limit(value: object) -> str:
    """Return a limit as YAML writes it; pydantic gives that of a duration in words."""
    text = str(value)
    number, _, unit = text.partition(" ")
    return f"PT{int(number) * _SECONDS[unit]:g}S" if unit in _SECONDS else text.removesuffix(".0")


def _is_connection_string(value: object) -> bool:
    text = str(value).lower() if isinstance(value, str) else ""
    return any(each in text for each in _CONNECTION_STRING)


def keys_at(model: type[BaseModel], location: tuple[int | str, ...], document: object) -> list[str]:
    """Return the keys that may stand at *location* in *document*; steps that name members of unions are ignored."""
    definitions = _schema(model)
    found = [definitions[""]]
    for step in location:
        inner = list(_inside(found, definitions, step))
        is_step = (isinstance(document, Mapping) and step in document) or (
            isinstance(document, list) and isinstance(step, int) and step < len(document)
        )
        if is_step and inner:
            found = inner
            document = document[step]  # type: ignore[index]  # checked in the line above
    return sorted({key for member in _members(found, definitions) for key in member.get("properties", {})})


@cache
def _schema(model: type[BaseModel]) -> dict[str, dict[str, Any]]:
    """Return the schema's definitions by reference, and the schema itself under the empty one."""
    schema = model.model_json_schema()
    return {"": schema, **{f"#/$defs/{name}": each for name, each in schema.get("$defs", {}).items()}}


def _members(schemas: list[dict[str, Any]], definitions: dict[str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield what *schemas* may be: what they refer to, and the members of unions."""
    for schema in schemas:
        if "$ref" in schema:
            yield from _members([definitions[schema["$ref"]]], definitions)
        for union in ("anyOf", "oneOf", "allOf"):
            yield from _members(schema.get(union, []), definitions)
        yield schema


def _inside(
    schemas: list[dict[str, Any]], definitions: dict[str, dict[str, Any]], step: int | str
) -> Iterator[dict[str, Any]]:
    for schema in _members(schemas, definitions):
        if isinstance(step, int):
            items = schema.get("items")
            yield from [items] if isinstance(items, dict) else []
        elif step in schema.get("properties", {}):
            yield schema["properties"][step]
        elif isinstance(schema.get("additionalProperties"), dict):
            yield schema["additionalProperties"]
