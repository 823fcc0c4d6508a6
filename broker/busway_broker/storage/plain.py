"""Converts configuration to plain data (JSON) and back, by the types of its fields."""

import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, Union, cast, get_args, get_origin, get_type_hints

from shared.amqp.codec import decode, encode
from shared.amqp.values import Value
from shared.rules import Action, CorrelationFilter, FalseFilter, Filter, TrueFilter, parse_action, parse_filter

_MICROSECOND = timedelta(microseconds=1)
_CONSTANTS: Mapping[str, Filter] = {"true": TrueFilter(), "false": FalseFilter()}


def plain(value: object) -> object:
    """Return a dataclass of the configuration, or the value of one of its fields, as plain data."""
    for kind, (write, _) in _CONVERSIONS.items():
        if isinstance(value, kind):
            return write(value)
    match value:
        case Enum():
            return value.value
        case tuple():
            return [plain(item) for item in value]
        case frozenset():
            return sorted(str(plain(item)) for item in value)
        case Mapping():
            return {name: plain(item) for name, item in value.items()}
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
    if origin is Mapping:
        return {name: _read(arguments[1], item) for name, item in data.items()}
    if kind in _CONVERSIONS:
        return _CONVERSIONS[kind][1](data)
    if is_dataclass(kind):
        hints, construct = get_type_hints(kind), cast("Callable[..., object]", kind)
        return construct(**{name: _read(hints[name], value) for name, value in data.items()})
    return kind(data) if issubclass(kind, Enum) else data


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
        return {"correlation": texts, "properties": plain(value.properties)}
    return {"sql": str(value)}


def _read_filter(data: Mapping[str, Any]) -> Filter:
    match data:
        case {"constant": name}:
            return _CONSTANTS[name]
        case {"correlation": texts, "properties": properties}:
            return CorrelationFilter(**texts, properties=_read(Mapping[str, Value], properties))
        case _:
            return parse_filter(data["sql"])


_CONVERSIONS: Mapping[type, tuple[Callable[[Any], object], Callable[[Any], object]]] = {
    Filter: (_plain_filter, _read_filter),
    Action: (str, parse_action),
    Value: (lambda value: encode(value).hex(), lambda data: decode(bytes.fromhex(data))[0]),
    timedelta: (lambda value: value // _MICROSECOND, lambda data: data * _MICROSECOND),
}
"""What the plain data of a value is, and how it is read again."""
