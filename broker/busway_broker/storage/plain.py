"""Converts configuration to plain data (JSON) and back, by the types of its fields."""

import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from busway_broker.core.rule_book import RuleDefinition
from shared.amqp.codec import decode, encode
from shared.amqp.values import Value
from shared.rules import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    TrueFilter,
    parse_action,
    parse_filter,
)

_MICROSECOND = timedelta(microseconds=1)
_CONSTANTS: Mapping[str, Filter] = {"true": TrueFilter(), "false": FalseFilter()}


def plain(value: object) -> object:
    """Return a dataclass of the configuration, or the value of one of its fields, as plain data."""
    match value:
        case Rule():
            return _plain_rule(value)
        case timedelta():
            return value // _MICROSECOND
        case Enum():
            return value.value
        case tuple():
            return [plain(item) for item in value]
        case frozenset():
            return sorted(str(plain(item)) for item in value)
        case None | bool() | int() | str():
            return value
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    raise TypeError(f"{type(value).__name__} has no plain form")


def read[Config](kind: type[Config], data: object) -> Config:
    """Return the dataclass of type *kind* in plain data; missing fields get their defaults."""
    result: Config = _read(kind, data)
    return result


def _read(kind: Any, data: Any) -> Any:  # noqa: ANN401 - types known at run time only
    arguments = get_args(kind)
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        [kind] = [argument for argument in arguments if argument is not type(None)]
        return None if data is None else _read(kind, data)
    if origin in (tuple, frozenset):
        return origin(_read(arguments[0], item) for item in data)
    if kind is Rule:
        return _read_rule(data)
    if kind is timedelta:
        return data * _MICROSECOND
    if is_dataclass(kind):
        hints, construct = get_type_hints(kind), cast("Callable[..., object]", kind)
        return construct(**{name: _read(hints[name], value) for name, value in data.items()})
    return kind(data) if issubclass(kind, Enum) else data


def plain_definition(definition: RuleDefinition) -> dict[str, object]:
    """Return a rule with its texts and time as plain data."""
    return {
        "rule": _plain_rule(definition.rule),
        "filter_text": definition.filter_text,
        "action_text": definition.action_text,
        "created_at": definition.created_at,
        "filter_times": dict(definition.filter_times),
        "action_times": dict(definition.action_times),
    }


def read_definition(data: Mapping[str, Any]) -> RuleDefinition:
    """Return the rule in plain data."""
    return RuleDefinition(
        _read_rule(data["rule"]),
        data["filter_text"],
        data["action_text"],
        data["created_at"],
        # The first version did not keep them.
        data.get("filter_times", {}),
        data.get("action_times", {}),
    )


def _plain_rule(rule: Rule) -> dict[str, object]:
    return {
        "name": rule.name,
        "filter": _plain_filter(rule.filter),
        "action": None if rule.action is None else str(rule.action),
        "filter_parameters": _plain_values(rule.filter_parameters),
        "action_parameters": _plain_values(rule.action_parameters),
    }


def _read_rule(data: Mapping[str, Any]) -> Rule:
    return Rule(
        data["name"],
        _read_filter(data["filter"]),
        None if data["action"] is None else parse_action(data["action"]),
        _read_values(data["filter_parameters"]),
        _read_values(data["action_parameters"]),
    )


def _plain_filter(value: Filter) -> dict[str, object]:
    for name, constant in _CONSTANTS.items():
        if value == constant:
            return {"constant": name}
    if isinstance(value, CorrelationFilter):
        texts = {
            field.name: getattr(value, field.name)
            for field in fields(value)
            if field.init and field.name != "properties"
        }
        return {"correlation": texts, "properties": _plain_values(value.properties)}
    return {"sql": str(value)}


def _read_filter(data: Mapping[str, Any]) -> Filter:
    match data:
        case {"constant": name}:
            return _CONSTANTS[name]
        case {"correlation": texts, "properties": properties}:
            return CorrelationFilter(**texts, properties=_read_values(properties))
        case _:
            return parse_filter(data["sql"])


def _plain_values(values: Mapping[str, Value]) -> dict[str, str]:
    return {name: encode(value).hex() for name, value in values.items()}


def _read_values(data: Mapping[str, str]) -> dict[str, Value]:
    return {name: decode(bytes.fromhex(text))[0] for name, text in data.items()}
