"""Checks of a sender's schema: values that take no bytes, deep types, and records that contain themselves."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shared.codecs.avro_scalars import Schema
from shared.codecs.plain import DEEPEST

_MOST = 100
# Two for each level of values: a record, and the union that its field may be.
_DEEPEST = 2 * DEEPEST


class _Empty(NamedTuple):
    """How many values of a type take no bytes, whether the whole type does, and how deeply its types are nested."""

    values: int
    all: bool
    depth: int = 1


class Shape:
    """The shape of a schema."""

    def __init__(self, schema: Schema, named: Mapping[str, Schema]) -> None:
        """Raise ValueError for a schema with which a few bytes can become any number of values."""
        self.contains_itself = False
        self._named = named
        self._open = set[str]()
        self._known: dict[str, _Empty] = {}
        self._empty(schema)
        self.values_per_byte = 1 + max((each.values for each in self._known.values()), default=0)
        """Largest number of values, nested ones too, that a byte of a body can be."""

    def _empty(self, schema: Schema) -> _Empty:
        if isinstance(schema, list):
            # The number of the branch takes a byte.
            branches = [self._empty(each) for each in schema]
            values = max((branch.values for branch in branches), default=0)
            return _Empty(values, all=False, depth=_around(branches))
        if isinstance(schema, str):
            return self._of_name(schema) if schema in self._named else _Empty(int(schema == "null"), schema == "null")
        match schema["type"]:
            case "record" | "error" | "enum" | "fixed":
                return self._of_name(schema["name"])
            case "array":
                items = self._empty(schema["items"])
                if items.all:
                    raise ValueError("has an array of items that take no bytes, of which any number fits into a few")
                return _Empty(0, all=False, depth=_around([items]))
            case "map":
                return _Empty(0, all=False, depth=_around([self._empty(schema["values"])]))
        return self._empty(schema["type"])

    def _of_name(self, name: str) -> _Empty:
        if name in self._open:
            # An array or a union is between the two and takes a byte; without one no value of the type exists.
            self.contains_itself = True
            return _Empty(0, all=False)
        if name not in self._known:
            self._open.add(name)
            self._known[name] = self._of_type(self._named[name])
            self._open.remove(name)
        return self._known[name]

    def _of_type(self, schema: Schema) -> _Empty:
        match schema["type"]:
            case "enum":
                return _Empty(0, all=False)
            case "fixed":
                return _Empty(int(schema["size"] == 0), schema["size"] == 0)
        fields = [self._empty(field["type"]) for field in schema["fields"]]
        takes_nothing = all(field.all for field in fields)
        values = sum(field.values for field in fields) + takes_nothing
        if values > _MOST:
            raise ValueError(f"has a record of more than {_MOST} values that take no bytes")
        return _Empty(values, takes_nothing, _around(fields))


def _around(parts: Sequence[_Empty]) -> int:
    """Return the depth of what consists of *parts*; fastavro's reader calls itself for each level."""
    depth = 1 + max((part.depth for part in parts), default=0)
    if depth > _DEEPEST:
        raise ValueError(f"has types that are nested more than {_DEEPEST} deep")
    return depth
