"""
Protocol Buffers: messages of a type in a descriptor set, which `protoc --descriptor_set_out --include_imports` writes.

Names and values are those of ProtoJSON: lowerCamelCase (names of the .proto file are accepted too), enums by name,
bytes in Base64, well-known types in their own form. If the other format is JSON, integers of 64 bits, NaN and the
infinities are text. Values that ProtoJSON's own reader would change are rejected: duplicate names, text that is not
Base64, numbers with more digits than the field has. Unknown fields are rejected too, unless they may be dropped.

Source: protobuf.dev, ProtoJSON Format, Encoding.
"""

import math
import struct
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.message import Error as ProtobufError

from shared.codecs.plain import DEEPEST, Plain, as_text, check_depth, too_deep
from shared.errors import MessageRejected

NOT_PROTOBUF = "NotProtobuf"
_WELL_KNOWN = frozenset(
    f"google.protobuf.{name}"
    for name in (
        *("Any", "Timestamp", "Duration", "FieldMask", "Struct", "Value", "ListValue", "NullValue"),
        *(
            f"{each}Value"
            for each in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
        ),
    )
)
_BITS: Mapping[int, tuple[int, int]] = {
    **dict.fromkeys((Field.TYPE_INT32, Field.TYPE_SINT32, Field.TYPE_SFIXED32), (-(2**31), 2**31 - 1)),
    **dict.fromkeys((Field.TYPE_INT64, Field.TYPE_SINT64, Field.TYPE_SFIXED64), (-(2**63), 2**63 - 1)),
    **dict.fromkeys((Field.TYPE_UINT32, Field.TYPE_FIXED32), (0, 2**32 - 1)),
    **dict.fromkeys((Field.TYPE_UINT64, Field.TYPE_FIXED64), (0, 2**64 - 1)),
}
_WIDE = frozenset((Field.TYPE_INT64, Field.TYPE_SINT64, Field.TYPE_SFIXED64, Field.TYPE_UINT64, Field.TYPE_FIXED64))
_LARGEST_FLOAT = 3.4028234663852886e38
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_LONGEST_INTEGER = 40
_SHORTEST, _LONGEST = 6, 9
# What ProtoJSON's library raises for values of the sender: an Any alone may raise each of them.
_UNREADABLE = (
    *(json_format.Error, ProtobufError, RecursionError),
    *(ValueError, TypeError, AttributeError, LookupError, ArithmeticError),
)

# Types of the library that are made at run time.
type ProtoMessage = Any
type Descriptor = Any


class _Mismatch(Exception):
    """A value that does not match its field."""

    def __init__(self, problem: str, path: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path


class Protobuf:
    """Messages of one type, `application/protobuf`."""

    name = "protobuf"
    media_type = "application/protobuf"

    def __init__(
        self, descriptors: bytes, message: str, *, beside_json: bool = True, drops_unknown: bool = False
    ) -> None:
        """Read and write the *message* of a descriptor set; raises ValueError if that cannot be used."""
        pool = descriptor_pool.DescriptorPool()
        try:
            for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
                pool.Add(file)
        except DecodeError as error:
            raise ValueError("is not a descriptor set, expected what protoc --descriptor_set_out writes") from error
        except TypeError as error:
            raise ValueError(f"{error} (protoc needs --include_imports)") from error
        try:
            self._make: Callable[[], ProtoMessage] = message_factory.GetMessageClass(
                pool.FindMessageTypeByName(message)
            )
        except KeyError as error:
            raise ValueError(f"has no message {message}, expected its full name, such as acme.Order") from error
        self._pool = pool
        self._beside_json = beside_json
        self._drops_unknown = drops_unknown

    def claims(self, media_type: str) -> bool:
        """Return whether a media type is Protocol Buffers: the registered one, or an older one."""
        known = ("application/protobuf", "application/x-protobuf", "application/vnd.google.protobuf")
        return media_type in known or media_type.endswith("+protobuf")

    def read(self, content: bytes) -> Plain:
        """Return the message in *content* as a mapping; raises MessageRejected."""
        message = self._make()
        try:
            message.ParseFromString(content)
        except DecodeError as error:
            # The library's text may quote the body.
            raise MessageRejected(NOT_PROTOBUF, "body is not such a message, or is nested too deeply") from error
        if not self._drops_unknown:
            size = message.ByteSize()
            message.DiscardUnknownFields()
            if message.ByteSize() != size:
                raise MessageRejected(NOT_PROTOBUF, "body has a field that is not in the descriptor set")
        try:
            return self._plain(message)
        except _UNREADABLE as error:
            raise MessageRejected(NOT_PROTOBUF, "body has a well-known type with an invalid value") from error

    def write(self, value: Plain) -> bytes:
        """Return the encoded message of a mapping; raises MessageRejected."""
        message = self._make()
        try:
            self._fill(message, value, 1)
        except _Mismatch as error:
            raise MessageRejected("SchemaViolated", f"${error.path}: {error.problem}") from error
        try:
            return bytes(message.SerializeToString(deterministic=True))
        except EncodeError as error:
            raise MessageRejected("SchemaViolated", "$: has no value for a required field") from error

    # From a message

    def _plain(self, message: ProtoMessage) -> Plain:
        if message.DESCRIPTOR.full_name in _WELL_KNOWN:
            found = json_format.MessageToDict(message, descriptor_pool=self._pool)
            check_depth(found)
            return found
        made: dict[str, Plain] = {}
        for field, value in message.ListFields():
            name = f"[{field.full_name}]" if field.is_extension else field.json_name
            entry = _map_entry(field)
            if entry is not None:
                _, of_value = entry
                made[name] = {_key(each): self._single(of_value, value[each]) for each in value}
            elif field.is_repeated:
                made[name] = [self._single(field, each) for each in value]
            else:
                made[name] = self._single(field, value)
        return made

    def _single(self, field: Descriptor, value: Any) -> Plain:  # noqa: ANN401 - the field has the type
        match field.type:
            case Field.TYPE_MESSAGE | Field.TYPE_GROUP:
                return self._plain(value)
            case Field.TYPE_ENUM:
                known = field.enum_type.values_by_number.get(value)
                return value if known is None else known.name
            case Field.TYPE_DOUBLE | Field.TYPE_FLOAT:
                if not math.isfinite(value):
                    return _not_finite(value) if self._beside_json else value
                return _shortest(value) if field.type == Field.TYPE_FLOAT else value
        return str(value) if self._beside_json and field.type in _WIDE else value

    # To a message

    def _fill(self, message: ProtoMessage, value: Plain, depth: int) -> None:
        if depth > DEEPEST:
            raise too_deep()
        descriptor = message.DESCRIPTOR
        if descriptor.full_name in _WELL_KNOWN:
            self._fill_well_known(message, value)
            return
        if type(value) is not dict:
            raise _Mismatch("got another kind of value, expected a mapping")
        fields, camel = descriptor.fields_by_name, descriptor.fields_by_camelcase_name
        seen = set[str]()
        for given, each in value.items():
            field = camel.get(given) or fields.get(given) or _by_json_name(descriptor, given)
            if field is None:
                raise _Mismatch(f"has a name that is not a field of {descriptor.full_name}")
            if field.name in seen:
                raise _Mismatch("is present twice, under both of its names", f".{field.name}")
            seen.add(field.name)
            if each is None and not _takes_null(field):
                continue
            if field.containing_oneof is not None and not field.is_repeated:
                others = {other.name for other in field.containing_oneof.fields} & seen - {field.name}
                if any(value.get(other) is not None for other in others):
                    raise _Mismatch("is one of several fields of which only one may be set", f".{field.name}")
            try:
                self._set(message, field, each, depth)
            except _Mismatch as error:
                raise _Mismatch(error.problem, f".{field.name}{error.path}") from error

    def _set(self, message: ProtoMessage, field: Descriptor, value: Plain, depth: int) -> None:
        entry = _map_entry(field)
        if entry is not None:
            self._set_map(getattr(message, field.name), *entry, value, depth)
        elif field.is_repeated:
            if type(value) is not list:
                raise _Mismatch("got another kind of value, expected a list")
            found = getattr(message, field.name)
            for index, each in enumerate(value):
                try:
                    if field.message_type is not None:
                        self._fill(found.add(), each, depth + 1)
                    else:
                        found.append(_scalar(field, each))
                except _Mismatch as error:
                    raise _Mismatch(error.problem, f"[{index}]{error.path}") from error
        elif field.message_type is not None:
            part = getattr(message, field.name)
            part.SetInParent()
            self._fill(part, value, depth + 1)
        else:
            setattr(message, field.name, _scalar(field, value))

    def _set_map(self, found: ProtoMessage, of_key: Descriptor, of_value: Descriptor, value: Plain, depth: int) -> None:
        if type(value) is not dict:
            raise _Mismatch("got another kind of value, expected a mapping")
        for given, each in value.items():
            try:
                key = _key_of(of_key, given)
                if of_value.message_type is not None:
                    self._fill(found[key], each, depth + 1)
                else:
                    found[key] = _scalar(of_value, each)
            except _Mismatch as error:
                raise _Mismatch(error.problem, f".*{error.path}") from error

    def _fill_well_known(self, message: ProtoMessage, value: Plain) -> None:
        name = message.DESCRIPTOR.name
        if hasattr(value, "isoformat"):
            value = as_text(value)
        if isinstance(value, Decimal):
            raise _Mismatch("got a number with more digits than a double has")
        if name == "BytesValue":
            value = as_text(_bytes(value))
        try:
            json_format.ParseDict(value, message, descriptor_pool=self._pool, max_recursion_depth=DEEPEST)
        except _UNREADABLE as error:
            # The library's text quotes the body.
            raise _Mismatch(f"got another kind of value, expected what ProtoJSON has for {name}") from error


def _map_entry(field: Descriptor) -> tuple[Descriptor, Descriptor] | None:
    entry = field.message_type
    if entry is None or not entry.GetOptions().map_entry:
        return None
    return entry.fields_by_name["key"], entry.fields_by_name["value"]


def _by_json_name(descriptor: Descriptor, name: str) -> Descriptor | None:
    return next((field for field in descriptor.fields if field.json_name == name), None)


def _takes_null(field: Descriptor) -> bool:
    return field.message_type is not None and field.message_type.full_name == "google.protobuf.Value"


def _key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _key_of(field: Descriptor, text: str) -> object:
    if field.type == Field.TYPE_BOOL:
        if text not in {"true", "false"}:
            raise _Mismatch("has a key that is neither true nor false")
        return text == "true"
    return _scalar(field, text)


def _scalar(field: Descriptor, value: Plain) -> object:
    kind = field.type
    if kind in _BITS:
        return _integer(value, *_BITS[kind])
    match kind:
        case Field.TYPE_STRING:
            return _text(value)
        case Field.TYPE_BOOL:
            if type(value) is not bool:
                raise _Mismatch("got another kind of value, expected a boolean")
            return value
        case Field.TYPE_BYTES:
            return _bytes(value)
        case Field.TYPE_ENUM:
            return _enum(field, value)
    return _number(value, single=kind == Field.TYPE_FLOAT)


def _integer(value: Plain, least: int, most: int) -> int:
    if type(value) is str and len(value) <= _LONGEST_INTEGER and value.removeprefix("-").isascii():
        value = int(value) if value.removeprefix("-").isdigit() else value
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int:
        raise _Mismatch("got another kind of value, expected a whole number")
    if not least <= value <= most:
        raise _Mismatch(f"got a number out of range, expected {least} to {most}")
    return value


def _number(value: Plain, *, single: bool) -> float:
    if type(value) is str and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if type(value) not in {int, float}:
        raise _Mismatch("got another kind of value, or more digits than a double has, expected a number")
    try:
        made = float(value)
    except OverflowError:
        made = math.inf
    if type(value) is int and made != value:
        raise _Mismatch("got a number with more digits than a double has")
    if single and _LARGEST_FLOAT < abs(made) < math.inf:
        raise _Mismatch("got a number out of range, expected one of 32 bits")
    return made


def _text(value: Plain) -> str:
    if hasattr(value, "isoformat"):
        return as_text(value)
    if type(value) is not str:
        raise _Mismatch("got another kind of value, expected text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _Mismatch("got a text with half a character (a lone surrogate)") from error
    return value


def _bytes(value: Plain) -> bytes:
    if type(value) is bytes:
        return value
    if type(value) is not str:
        raise _Mismatch("got another kind of value, expected bytes, or their Base64")
    try:
        return b64decode(value, validate=True)
    except (NotBase64, ValueError) as error:
        raise _Mismatch("got a text that is not Base64, expected bytes") from error


def _enum(field: Descriptor, value: Plain) -> int:
    if type(value) is int:
        return _integer(value, *_BITS[Field.TYPE_INT32])
    known = field.enum_type.values_by_name.get(value) if type(value) is str else None
    if known is None:
        raise _Mismatch("got another kind of value, expected a name of the enum")
    return int(known.number)


def _shortest(value: float) -> float:
    """Return the double with the fewest digits that has the same 32 bits."""
    packed = struct.pack("f", value)
    for digits in range(_SHORTEST, _LONGEST):
        short = float(f"{value:.{digits}g}")
        if abs(short) <= _LARGEST_FLOAT and struct.pack("f", short) == packed:
            return short
    return value


def _not_finite(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
