"""
The types of an Avro schema, compiled into functions that convert values before they are written and skip encoded ones.

1. fastavro makes values fit: it cuts off fractions, drops unknown fields, and writes integers that are out of range. So
   each value is checked before it is written.
2. Its reader calls itself for each level, without a limit: a body of a schema that contains itself and nests deeply
   enough would end the process. Compressed bodies, and records with fields that take no bytes, become any number of
   values. Such a body is walked through once before it is read.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from shared.codecs import avro_scalars
from shared.codecs.avro_scalars import Convert, Datum, Mismatch, Schema, wrong
from shared.codecs.plain import DEEPEST, Plain
from shared.errors import MessageRejected

NOT_AVRO = "NotAvro"

_ABSENT = object()
# Branches of a union that are tried last: a text is a text before it is Base64, and a number keeps its digits.
_LAST = ("bytes", "fixed", "map", "float")
_MOST_EMPTY = 100
# Two for each level of values, a record and the union or array that it is in; Python's own stack has room for more.
_DEEPEST = 4 * DEEPEST
# A record, and the union that its field may be.
_DEEPEST_TYPE = 2 * DEEPEST
_HIGHEST_SHIFT = 63
_LARGEST_FIXED = 2**31

# Returns where a value ends that begins at a position, at a level of nesting; raises ValueError where it does not end.
type _Skip = Callable[[bytes, int, int], int]


class _Type(NamedTuple):
    """How values of a type are converted and skipped, and how many values of it take no bytes."""

    convert: Convert
    skip: _Skip
    empty_values: int = 0
    is_empty: bool = False
    """Whether the whole type takes no bytes."""
    depth: int = 1
    """How deeply its types are nested."""


class AvroTypes:
    """A parsed schema with all of its types."""

    def __init__(self, schema: Schema, named: Mapping[str, Schema]) -> None:
        """
        Compile *schema*, whose types with a name are in *named*.

        Raises ValueError for a schema that cannot be used, or with which a few bytes can become any number of values.
        """
        self.contains_itself = False
        self._named = named
        self._left = _Left()
        self._made: dict[str, _Type] = {}
        self._open = set[str]()
        whole = self._compile(schema)
        self.convert = whole.convert
        """Return a value as fastavro writes it; raises Mismatch."""
        self._skip = whole.skip
        self.values_per_byte = 1 + max((each.empty_values for each in self._made.values()), default=0)
        """Largest number of values, nested ones too, that a byte of a body can be."""

    def walk(self, content: bytes, count: int, most: int) -> tuple[list[int], int]:
        """
        Return where each of *count* values ends, and how many values they are with all that they contain.

        Raises MessageRejected if one is nested too deeply or if they are more than *most*, ValueError for what is not a
        value.
        """
        self._left.values = most
        self._left.take(count)
        position, ends = 0, list[int]()
        try:
            for _ in range(count):
                position = self._skip(content, position, 0)
                ends.append(position)
        except RecursionError as error:
            raise _too_deep() from error
        return ends, most - self._left.values

    def _compile(self, schema: Schema) -> _Type:
        if isinstance(schema, list):
            return self._union(schema)
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(kind, str) and kind in self._named:
            return self._by_name(kind)
        match kind:
            case "record" | "error" | "enum" | "fixed":
                return self._by_name(schema["name"])
            case "array":
                item = self._compile(schema["items"])
                if item.is_empty:
                    raise ValueError("has an array of items that take no bytes, of which any number fits into a few")
                return _Type(_array(item.convert), _skip_blocks(item.skip, self._left), depth=_around([item]))
            case "map":
                item = self._compile(schema["values"])
                skip = _skip_blocks(item.skip, self._left, has_keys=True)
                return _Type(_map(item.convert), skip, depth=_around([item]))
        plain = _PRIMITIVES[kind] if isinstance(kind, str) else self._compile(kind)
        logical = None if isinstance(schema, str) else schema.get("logicalType")
        if logical == "decimal" and kind == "bytes":
            return plain._replace(convert=avro_scalars.decimal_of(schema))
        return plain._replace(convert=avro_scalars.LOGICAL.get((kind, logical), plain.convert)) if logical else plain

    def _by_name(self, name: str) -> _Type:
        if name in self._open:
            # An array or a union is between the two and takes a byte; without one no value of the type exists.
            self.contains_itself = True
        elif name not in self._made:
            self._open.add(name)
            # Until it is compiled, what is inside it looks it up when a value is converted or skipped.
            self._made[name] = _Type(
                lambda value: self._made[name].convert(value),  # noqa: PLW0108 - it looks the other up later
                lambda *place: self._made[name].skip(*place),  # noqa: PLW0108 - likewise
            )
            self._made[name] = self._named_type(name, self._named[name])
            self._open.remove(name)
        return self._made[name]

    def _named_type(self, name: str, schema: Schema) -> _Type:
        match schema["type"]:
            case "enum":
                return _Type(avro_scalars.enum(schema["symbols"]), _skip_number)
            case "fixed":
                size = schema["size"]
                if type(size) is not int or not 0 <= size < _LARGEST_FIXED:
                    raise ValueError(f"{name}: size: expected a number of bytes")
                is_decimal = schema.get("logicalType") == "decimal"
                convert = avro_scalars.decimal_of(schema) if is_decimal else avro_scalars.fixed(size)
                return _Type(convert, _skip_size(size), int(size == 0), size == 0)
        fields = schema["fields"]
        names = [field["name"] for field in fields]
        if len(set(names)) != len(names):
            raise ValueError(f"{name}: has two fields with the same name")
        types = [self._compile(field["type"]) for field in fields]
        is_empty = all(each.is_empty for each in types)
        empty_values = sum(each.empty_values for each in types) + is_empty
        if empty_values > _MOST_EMPTY:
            raise ValueError(f"has a record of more than {_MOST_EMPTY} values that take no bytes")
        defaults = [self._default(field["type"], field.get("default", _ABSENT)) for field in fields]
        convert = _record(list(zip(names, (each.convert for each in types), defaults, strict=True)))
        skip = _skip_record([each.skip for each in types], self._left)
        return _Type(convert, skip, empty_values, is_empty, _around(types))

    def _union(self, schemas: list[Schema]) -> _Type:
        tags = [_tag(schema) for schema in schemas]
        if len(set(tags)) != len(tags) or any(isinstance(schema, list) for schema in schemas):
            raise ValueError("has a union with a duplicate type, or with a union in it")
        types = [self._compile(schema) for schema in schemas]
        tried = sorted(zip(tags, schemas, types, strict=True), key=lambda branch: self._is_last(branch[1]))
        convert = _convert_union([(tag, each.convert) for tag, _, each in tried if tag != "null"], "null" in tags)
        # The number of the branch takes a byte.
        values = max((each.empty_values for each in types), default=0)
        return _Type(convert, _skip_union([each.skip for each in types]), values, depth=_around(types))

    def _is_last(self, schema: Schema) -> bool:
        known = self._named.get(schema, schema) if isinstance(schema, str) else schema
        if isinstance(known, str):
            return known in _LAST
        return known["type"] in _LAST and known.get("logicalType") != "decimal"

    def _default(self, schema: Schema, value: Plain) -> Datum:
        """Return the value of a default, in which each byte is written as the character with its code."""
        if value is _ABSENT:
            return value
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
            return self._compile(schema).convert(value)
        except (Mismatch, AttributeError, TypeError, KeyError, UnicodeEncodeError) as error:
            raise ValueError("has a default of another type than its field") from error


class _Left:
    """The number of values that a body may still have."""

    values = 0

    def take(self, count: int) -> None:
        self.values -= count
        if self.values < 0:
            raise MessageRejected("TooManyValues", "body becomes too many values")


def _around(parts: Sequence[_Type]) -> int:
    """Return the depth of what consists of *parts*; fastavro's reader calls itself for each level."""
    depth = 1 + max((part.depth for part in parts), default=0)
    if depth > _DEEPEST_TYPE:
        raise ValueError(f"has types that are nested more than {_DEEPEST_TYPE} deep")
    return depth


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


def _convert_union(branches: list[tuple[str, Convert]], takes_null: bool) -> Convert:
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


def _skip_record(fields: Sequence[_Skip], left: _Left) -> _Skip:
    def skip(content: bytes, position: int, level: int) -> int:
        _check_level(level)
        left.take(len(fields))
        for field in fields:
            position = field(content, position, level + 1)
        return position

    return skip


def _skip_union(branches: Sequence[_Skip]) -> _Skip:
    def skip(content: bytes, position: int, level: int) -> int:
        _check_level(level)
        index, position = read_long(content, position)
        if not 0 <= index < len(branches):
            raise ValueError("no such branch")
        return branches[index](content, position, level + 1)

    return skip


def _skip_blocks(item: _Skip, left: _Left, *, has_keys: bool = False) -> _Skip:
    def skip(content: bytes, position: int, level: int) -> int:
        _check_level(level)
        while True:
            count, position = read_long(content, position)
            if count == 0:
                return position
            if count < 0:
                # The size of the block follows, for readers that skip it.
                count, position = -count, _skip_number(content, position, level)
            left.take(count)
            for _ in range(count):
                if has_keys:
                    position = _skip_bytes(content, position, level)
                position = item(content, position, level + 1)

    return skip


def _skip_size(size: int) -> _Skip:
    def skip(content: bytes, position: int, _: int) -> int:
        return _within(content, position + size)

    return skip


def _skip_bytes(content: bytes, position: int, _: int) -> int:
    size, position = read_long(content, position)
    if size < 0:
        raise ValueError("negative size")
    return _within(content, position + size)


def _skip_number(content: bytes, position: int, _: int) -> int:
    return read_long(content, position)[1]


def read_long(content: bytes, position: int) -> tuple[int, int]:
    """Return the number at *position*, and where it ends; ValueError if there is no number."""
    value = shift = 0
    while shift <= _HIGHEST_SHIFT and position < len(content):
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follows
            return (value >> 1) ^ -(value & 1), position
    raise ValueError("no number")


def _within(content: bytes, position: int) -> int:
    if position > len(content):
        raise ValueError("ends early")
    return position


def _check_level(level: int) -> None:
    if level >= _DEEPEST:
        raise _too_deep()


def _too_deep() -> MessageRejected:
    return MessageRejected(NOT_AVRO, "body is nested too deeply to be read")


_PRIMITIVES: Mapping[str, _Type] = {
    "null": _Type(avro_scalars.PRIMITIVES["null"], _skip_size(0), 1, is_empty=True),
    "boolean": _Type(avro_scalars.PRIMITIVES["boolean"], _skip_size(1)),
    "int": _Type(avro_scalars.PRIMITIVES["int"], _skip_number),
    "long": _Type(avro_scalars.PRIMITIVES["long"], _skip_number),
    "float": _Type(avro_scalars.PRIMITIVES["float"], _skip_size(4)),
    "double": _Type(avro_scalars.PRIMITIVES["double"], _skip_size(8)),
    "bytes": _Type(avro_scalars.PRIMITIVES["bytes"], _skip_bytes),
    "string": _Type(avro_scalars.PRIMITIVES["string"], _skip_bytes),
}
