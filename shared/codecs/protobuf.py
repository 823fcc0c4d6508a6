"""
Protocol Buffers: messages of a type in a descriptor set, which `protoc --descriptor_set_out --include_imports` writes.

Names and values are those of ProtoJSON: lowerCamelCase (names of the .proto file are accepted too), enums by name,
bytes in Base64, well-known types in their own form. If the other format is JSON, integers of 64 bits, NaN and the
infinities are text. Values that ProtoJSON's own reader would change are rejected: duplicate names, text that is not
Base64, numbers with more digits than the field has. Unknown fields are rejected too, unless they may be dropped.

Source: protobuf.dev, ProtoJSON Format, Encoding.
"""

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import DecodeError, EncodeError
from google.protobuf.message import Error as ProtobufError

from shared.codecs.plain import DEEPEST, Plain, as_text, check_depth, too_deep
from shared.codecs.protobuf_values import Descriptor, Mismatch, bytes_of, key_of, not_finite_text, scalar, shortest
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
_WIDE = frozenset((Field.TYPE_INT64, Field.TYPE_SINT64, Field.TYPE_SFIXED64, Field.TYPE_UINT64, Field.TYPE_FIXED64))
# What ProtoJSON's library raises for values of the sender: an Any alone may raise each of them.
_UNREADABLE = (
    *(json_format.Error, ProtobufError, RecursionError),
    *(ValueError, TypeError, AttributeError, LookupError, ArithmeticError),
)

# The library makes its types at run time.
type ProtoMessage = Any


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
        except Mismatch as error:
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
                    return not_finite_text(value) if self._beside_json else value
                return shortest(value) if field.type == Field.TYPE_FLOAT else value
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
            raise Mismatch("got another kind of value, expected a mapping")
        fields, camel = descriptor.fields_by_name, descriptor.fields_by_camelcase_name
        seen = set[str]()
        for given, each in value.items():
            field = camel.get(given) or fields.get(given) or _by_json_name(descriptor, given)
            if field is None:
                raise Mismatch(f"has a name that is not a field of {descriptor.full_name}")
            if field.name in seen:
                raise Mismatch("is present twice, under both of its names", f".{field.name}")
            seen.add(field.name)
            if each is None and not _takes_null(field):
                continue
            if field.containing_oneof is not None and not field.is_repeated:
                others = {other.name for other in field.containing_oneof.fields} & seen - {field.name}
                if any(value.get(other) is not None for other in others):
                    raise Mismatch("is one of several fields of which only one may be set", f".{field.name}")
            try:
                self._set(message, field, each, depth)
            except Mismatch as error:
                raise Mismatch(error.problem, f".{field.name}{error.path}") from error

    def _set(self, message: ProtoMessage, field: Descriptor, value: Plain, depth: int) -> None:
        entry = _map_entry(field)
        if entry is not None:
            self._set_map(getattr(message, field.name), *entry, value, depth)
        elif field.is_repeated:
            if type(value) is not list:
                raise Mismatch("got another kind of value, expected a list")
            found = getattr(message, field.name)
            for index, each in enumerate(value):
                try:
                    if field.message_type is not None:
                        self._fill(found.add(), each, depth + 1)
                    else:
                        found.append(scalar(field, each))
                except Mismatch as error:
                    raise Mismatch(error.problem, f"[{index}]{error.path}") from error
        elif field.message_type is not None:
            part = getattr(message, field.name)
            part.SetInParent()
            self._fill(part, value, depth + 1)
        else:
            setattr(message, field.name, scalar(field, value))

    def _set_map(self, found: ProtoMessage, of_key: Descriptor, of_value: Descriptor, value: Plain, depth: int) -> None:
        if type(value) is not dict:
            raise Mismatch("got another kind of value, expected a mapping")
        for given, each in value.items():
            try:
                key = key_of(of_key, given)
                if of_value.message_type is not None:
                    self._fill(found[key], each, depth + 1)
                else:
                    found[key] = scalar(of_value, each)
            except Mismatch as error:
                raise Mismatch(error.problem, f".*{error.path}") from error

    def _fill_well_known(self, message: ProtoMessage, value: Plain) -> None:
        name = message.DESCRIPTOR.name
        if hasattr(value, "isoformat"):
            value = as_text(value)
        if isinstance(value, Decimal):
            raise Mismatch("got a number with more digits than a double has")
        if name == "BytesValue":
            value = as_text(bytes_of(value))
        try:
            json_format.ParseDict(value, message, descriptor_pool=self._pool, max_recursion_depth=DEEPEST)
        except _UNREADABLE as error:
            # The library's text quotes the body.
            raise Mismatch(f"got another kind of value, expected what ProtoJSON has for {name}") from error


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
