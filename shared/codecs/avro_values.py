"""
Values checked against an Avro schema, before fastavro writes them.

fastavro makes values fit: it cuts off fractions, drops unknown fields, and writes integers that are out of range.
"""

from collections.abc import Mapping

from shared.codecs.avro_scalars import (
    LOGICAL,
    PRIMITIVES,
    Convert,
    Datum,
    Mismatch,
    Schema,
    decimal_of,
    enum,
    fixed,
    wrong,
)
from shared.codecs.plain import Plain

_ABSENT = object()
# Branches of a union that are tried last: a text is a text before it is Base64, and a number keeps its digits.
_LAST = ("bytes", "fixed", "map", "float")


def converter(schema: Schema, named: Mapping[str, Schema]) -> Convert:
    """Return a conversion to values of a parsed *schema*; ValueError for a schema that cannot be used."""
    return _Compiler(named).convert(schema)


class _Compiler:
    """Compiles each type of one schema into a function."""

    def __init__(self, named: Mapping[str, Schema]) -> None:
        self._named = named
        self._made: dict[str, Convert] = {}

    def convert(self, schema: Schema) -> Convert:
        if isinstance(schema, list):
            return self._union(schema)
        if isinstance(schema, str):
            if schema in self._named:
                return self._by_name(schema)
            return PRIMITIVES[schema]
        kind = schema["type"]
        match kind:
            case "array":
                return _array(self.convert(schema["items"]))
            case "map":
                return _map(self.convert(schema["values"]))
            case "record" | "error" | "enum" | "fixed":
                return self._by_name(schema["name"])
        logical = schema.get("logicalType")
        if logical == "decimal" and kind == "bytes":
            return decimal_of(schema)
        return LOGICAL.get((kind, logical)) or self.convert(kind)

    def _by_name(self, name: str) -> Convert:
        if name not in self._made:
            # A record may contain itself: until it is compiled, this looks it up when a value is converted.
            self._made[name] = lambda value: self._made[name](value)  # noqa: PLW0108 - it looks the other up later
            self._made[name] = self._named_type(name, self._named[name])
        return self._made[name]

    def _named_type(self, name: str, schema: Schema) -> Convert:
        match schema["type"]:
            case "enum":
                return enum(schema["symbols"])
            case "fixed":
                size = schema["size"]
                if type(size) is not int or not 0 <= size < 2**31:
                    raise ValueError(f"{name}: size: expected a number of bytes")
                return decimal_of(schema) if schema.get("logicalType") == "decimal" else fixed(size)
        fields = schema["fields"]
        names = [field["name"] for field in fields]
        if len(set(names)) != len(names):
            raise ValueError(f"{name}: has two fields with the same name")
        made = []
        for field in fields:
            convert = self.convert(field["type"])
            default = self._default(field["type"], field["default"]) if "default" in field else _ABSENT
            made.append((field["name"], convert, default))
        return _record(made)

    def _default(self, schema: Schema, value: Plain) -> Datum:
        """Return the value of a default, in which each byte is written as the character with its code."""
        if isinstance(schema, list):
            made = self._default(schema[0], value)
            return made if schema[0] == "null" else (_tag(schema[0]), made)
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        kind = schema["type"] if isinstance(schema, dict) else schema
        try:
            match kind:
                case "bytes" | "fixed":
                    return value.encode("latin-1")
                case "array":
                    return [self._default(schema["items"], each) for each in value]
                case "map":
                    return {name: self._default(schema["values"], each) for name, each in value.items()}
                case "record" | "error":
                    types = {field["name"]: field for field in schema["fields"]}
                    given = {name: field.get("default") for name, field in types.items()} | value
                    return {name: self._default(types[name]["type"], each) for name, each in given.items()}
            return self.convert(schema)(value)
        except (Mismatch, AttributeError, TypeError, KeyError, UnicodeEncodeError) as error:
            raise ValueError("has a default of another type than its field") from error

    def _union(self, schemas: list[Schema]) -> Convert:
        tags = [_tag(schema) for schema in schemas]
        if len(set(tags)) != len(tags) or any(isinstance(schema, list) for schema in schemas):
            raise ValueError("has a union with a duplicate type, or with a union in it")
        tried = sorted(zip(tags, schemas, strict=True), key=lambda branch: self._is_last(branch[1]))
        branches = [(tag, self.convert(schema)) for tag, schema in tried if tag != "null"]
        return _union(branches, takes_null="null" in tags)

    def _is_last(self, schema: Schema) -> bool:
        known = self._named.get(schema, schema) if isinstance(schema, str) else schema
        if isinstance(known, str):
            return known in _LAST
        return known["type"] in _LAST and known.get("logicalType") != "decimal"


def _tag(schema: Schema) -> str:
    """Return the name by which fastavro knows a branch of a union."""
    if not isinstance(schema, dict):
        return str(schema)
    return str(schema["name"] if schema["type"] in {"record", "error", "enum", "fixed"} else schema["type"])


def _array(item: Convert) -> Convert:
    def array(value: Plain) -> Datum:
        if type(value) is not list:
            raise wrong(value, "a list")
        made = []
        try:
            for each in value:
                made.append(item(each))  # noqa: PERF401 - its length is the place of a mismatch
        except Mismatch as error:
            raise error.within(f"[{len(made)}]") from None
        return made

    return array


def _map(item: Convert) -> Convert:
    def mapping(value: Plain) -> Datum:
        if type(value) is not dict:
            raise wrong(value, "a mapping")
        try:
            return {name: item(each) for name, each in value.items()}
        except Mismatch as error:
            raise error.within(".*") from None

    return mapping


def _record(fields: list[tuple[str, Convert, Datum]]) -> Convert:
    required = [name for name, _, default in fields if default is _ABSENT]

    def record(value: Plain) -> Datum:
        if type(value) is not dict:
            raise wrong(value, "a mapping")
        made = {}
        left = len(value)
        name = ""
        try:
            for name, convert, default in fields:
                each = value.get(name, _ABSENT)
                if each is not _ABSENT:
                    made[name] = convert(each)
                    left -= 1
                elif default is not _ABSENT:
                    made[name] = default
        except Mismatch as error:
            raise error.within(f".{name}") from None
        if left:
            raise Mismatch("has a name that is not a field of the schema")
        if len(made) != len(fields):
            raise Mismatch(f"has no {', '.join(each for each in required if each not in value)}")
        return made

    return record


def _union(branches: list[tuple[str, Convert]], *, takes_null: bool) -> Convert:
    def union(value: Plain) -> Datum:
        if value is None and takes_null:
            return None
        for tag, convert in branches:
            try:
                return tag, convert(value)
            except Mismatch:
                continue
        raise wrong(value, f"one of {len(branches) + takes_null} types")

    def only(value: Plain) -> Datum:
        return None if value is None and takes_null else (tag, convert(value))

    if len(branches) != 1:
        return union
    tag, convert = branches[0]
    return only
