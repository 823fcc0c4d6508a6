"""
The number of values in a body, and how deeply they are nested, and the bounds that a sender's schema gives for both.

fastavro's reader calls itself for each level, without a limit: a body of a schema that contains itself and nests deeply
enough would end the process. Compressed bodies, and records with fields that take no bytes, become any number of
values. Such a body is walked through once before it is read.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from shared.codecs.avro_scalars import Schema
from shared.codecs.plain import DEEPEST
from shared.errors import MessageRejected

_MOST = 100
# As below: a record, and the union that its field may be.
_DEEPEST_TYPE = 2 * DEEPEST


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
    if depth > _DEEPEST_TYPE:
        raise ValueError(f"has types that are nested more than {_DEEPEST_TYPE} deep")
    return depth


NOT_AVRO = "NotAvro"
TOO_MANY_VALUES = "TooManyValues"
# Two for each level of values, a record and the union or array that it is in; Python's own stack has room for more.
_DEEPEST = 4 * DEEPEST
_HIGHEST_SHIFT = 63

# Returns where a value ends that begins at a position, at a level of nesting; raises ValueError where it does not end.
type _Skip = Callable[[bytes, int, int], int]


class _Left:
    """The number of values that a body may still have."""

    values = 0

    def take(self, count: int) -> None:
        """Subtract *count*; raises MessageRejected if that is more than the rest."""
        self.values -= count
        if self.values < 0:
            raise MessageRejected(TOO_MANY_VALUES, "body becomes too many values")


class DepthCheck:
    """A schema, compiled into functions that skip its values."""

    def __init__(self, schema: Schema, named: Mapping[str, Schema]) -> None:
        """Compile a parsed *schema*, whose types with a name are in *named*."""
        self._named = named
        self._left = _Left()
        self._made: dict[str, _Skip] = {}
        self._skip = self._compile(schema)

    def check(self, content: bytes, count: int, most: int) -> int:
        """
        Return how many values *count* values are with all that they contain.

        Raises MessageRejected if one is nested too deeply or if they are more than *most*, ValueError for what is not a
        value.
        """
        self.ends(content, count, most)
        return most - self._left.values

    def ends(self, content: bytes, count: int, most: int) -> list[int]:
        """Return where each of *count* values ends; raises as `check`."""
        self._left.values = most
        self._left.take(count)
        position, found = 0, list[int]()
        try:
            for _ in range(count):
                position = self._skip(content, position, 0)
                found.append(position)
        except RecursionError as error:
            raise _too_deep() from error
        return found

    def _compile(self, schema: Schema) -> _Skip:
        if isinstance(schema, list):
            return _union([self._compile(each) for each in schema])
        kind = schema if isinstance(schema, str) else schema["type"]
        if isinstance(kind, str) and kind in self._named:
            return self._by_name(kind)
        match kind:
            case "record" | "error" | "enum" | "fixed":
                return self._by_name(schema["name"])
            case "array" | "map":
                is_map = kind == "map"
                item = self._compile(schema["values" if is_map else "items"])
                return _blocks(item, self._left, has_keys=is_map)
        return _PRIMITIVES[kind] if isinstance(kind, str) else self._compile(kind)

    def _by_name(self, name: str) -> _Skip:
        if name not in self._made:
            # The type may contain itself: until it is compiled, this looks it up when a value is skipped.
            self._made[name] = lambda *value: self._made[name](*value)  # noqa: PLW0108 - it looks the other up later
            schema = self._named[name]
            match schema["type"]:
                case "enum":
                    self._made[name] = _skip_number
                case "fixed":
                    self._made[name] = _fixed(schema["size"])
                case _:
                    self._made[name] = _record([self._compile(field["type"]) for field in schema["fields"]], self._left)
        return self._made[name]


def _record(fields: Sequence[_Skip], left: _Left) -> _Skip:
    def skip(content: bytes, position: int, level: int) -> int:
        _check_level(level)
        left.take(len(fields))
        for field in fields:
            position = field(content, position, level + 1)
        return position

    return skip


def _union(branches: Sequence[_Skip]) -> _Skip:
    def skip(content: bytes, position: int, level: int) -> int:
        _check_level(level)
        index, position = read_long(content, position)
        if not 0 <= index < len(branches):
            raise ValueError("no such branch")
        return branches[index](content, position, level + 1)

    return skip


def _blocks(item: _Skip, left: _Left, *, has_keys: bool) -> _Skip:
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


def _fixed(size: int) -> _Skip:
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


_PRIMITIVES: Mapping[str, _Skip] = {
    "null": _fixed(0),
    "boolean": _fixed(1),
    "int": _skip_number,
    "long": _skip_number,
    "float": _fixed(4),
    "double": _fixed(8),
    "bytes": _skip_bytes,
    "string": _skip_bytes,
}
