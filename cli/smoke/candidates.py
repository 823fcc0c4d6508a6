"""Messages that the rules of a task may select, made up from the values that the rules compare with."""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from shared.rules import syntax
from shared.rules.syntax import Expression, Predicate, Property, Scope

MOST = 300

type Key = tuple[Scope, str]
type Line = dict[str, Any]
"""A message as a line of the files of `busway try`."""

_SYSTEM = {
    "label": "subject",
    "subject": "subject",
    "correlationid": "correlation_id",
    "contenttype": "content_type",
    "to": "to",
    "replyto": "reply_to",
}
_TEXT = "smoke"


def candidates(predicates: Iterable[Predicate], line: Mapping[str, Any]) -> Iterator[Line]:
    """Yield *line* itself, then with values for the properties that *predicates* name, those with few of them first."""
    values: dict[Key, dict[str, Any]] = {}
    for predicate in predicates:
        _collect(predicate, values)
    # None leaves a property out.
    choices = [[(key, None), *((key, value) for value in known.values())] for key, known in values.items()]
    combinations = itertools.islice(itertools.product(*choices), 20 * MOST)
    for chosen in sorted(combinations, key=lambda combination: sum(value is not None for _, value in combination))[
        :MOST
    ]:
        yield _with(line, {key: value for key, value in chosen if value is not None})


def _with(line: Mapping[str, Any], chosen: Mapping[Key, Any]) -> Line:
    made: Line = {**line, "properties": dict(line.get("properties", {}))}
    for (scope, name), value in chosen.items():
        if scope is Scope.USER:
            made["properties"][name] = value
        elif name.lower() in _SYSTEM:
            made[_SYSTEM[name.lower()]] = str(value)
    return made


def _collect(predicate: Predicate, values: dict[Key, dict[str, Any]]) -> None:
    match predicate:
        case syntax.And() | syntax.Or():
            for operand in predicate.operands:
                _collect(operand, values)
        case syntax.Not():
            _collect(predicate.operand, values)
        case syntax.Comparison():
            _note(predicate.left, [predicate.right], values)
            _note(predicate.right, [predicate.left], values)
        case syntax.In():
            _note(predicate.operand, predicate.items, values)
        case syntax.Like():
            _note(predicate.operand, [predicate.pattern], values, is_pattern=True)
        case syntax.IsNull() | syntax.Exists():
            _add(predicate.property, [_TEXT], values)


def _note(
    operand: Expression, others: Iterable[Expression], values: dict[Key, dict[str, Any]], *, is_pattern: bool = False
) -> None:
    if not isinstance(operand, Property):
        return
    found: list[Any] = []
    for other in others:
        if not isinstance(other, syntax.Literal):
            continue
        payload = other.value.payload
        if isinstance(payload, str):
            found += [payload.replace("%", "").replace("_", "x")] if is_pattern else [payload, payload + "x"]
        elif isinstance(payload, bool):
            found += [payload, not payload]
        elif isinstance(payload, int | float):
            found += [payload, payload + 1, payload - 1]
    _add(operand, found, values)


def _add(operand: Property, found: Iterable[Any], values: dict[Key, dict[str, Any]]) -> None:
    known = values.setdefault((operand.scope, operand.name), {})
    for each in found:
        known.setdefault(repr(each), each)
