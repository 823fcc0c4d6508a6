"""Protobuf bodies of a sender that means harm: each is read or rejected, and no other exception leaves the codec."""

from types import SimpleNamespace

import pytest
from google.protobuf import any_pb2, descriptor_pb2, struct_pb2, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

from shared.codecs.protobuf import Protobuf
from shared.codecs.protobuf_values import Mismatch, scalar
from shared.errors import MessageRejected

_ANY = "type.googleapis.com/google.protobuf.Any"


def descriptors() -> bytes:
    files = descriptor_pb2.FileDescriptorSet()
    for module in (any_pb2, struct_pb2, timestamp_pb2):
        module.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(name="order.proto", package="acme", syntax="proto3")
    file.dependency.extend(each.name for each in files.file[:3])
    order = file.message_type.add(name="Order")
    for number, name in enumerate(("Any", "Value", "Timestamp"), 1):
        order.field.add(
            name=name.lower(),
            json_name=name.lower(),
            number=number,
            type=Field.TYPE_MESSAGE,
            label=Field.LABEL_OPTIONAL,
            type_name=f".google.protobuf.{name}",
        )
    return files.SerializeToString()


CODEC = Protobuf(descriptors(), "acme.Order")


def in_any(url: str, value: bytes) -> bytes:
    return any_pb2.Any(type_url=url, value=value).SerializeToString()


def as_field(content: bytes, number: int = 1) -> bytes:
    size, value = bytearray(), len(content)
    while value > 0x7F:
        size.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((number << 3 | 2, *size, value)) + content


def nested(levels: int) -> bytes:
    content = b""
    for _ in range(levels):
        content = in_any(_ANY, content)
    return content


BOMBS = {
    "an Any of unreadable bytes": in_any(_ANY, b"\xff\xff\xff"),
    "an Any of an unknown type": in_any("type.googleapis.com/acme.Unknown", b""),
    "an Any without a type": any_pb2.Any(value=b"\x01").SerializeToString(),
    "an Any with a type that is no name": in_any("//", b"\x01"),
    "an Any in an Any, 200 times": nested(200),
    "an Any in an Any, 2,000 times": nested(2000),
    "an Any of a time out of range": in_any(
        "type.googleapis.com/google.protobuf.Timestamp", b"\x08" + b"\xff" * 8 + b"\x7f"
    ),
    "an Any of a number that JSON lacks": in_any(
        "type.googleapis.com/google.protobuf.Value", struct_pb2.Value(number_value=float("nan")).SerializeToString()
    ),
}


NUMBERS = {
    "d": Field.TYPE_DOUBLE,
    "f": Field.TYPE_FLOAT,
    "i": Field.TYPE_INT32,
    "u": Field.TYPE_UINT64,
    "b": Field.TYPE_BYTES,
}


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        *(("d", text, number) for text, number in (("1.5", 1.5), ("-1.5e3", -1500.0), ("1", 1.0), ("0.1", 0.1))),
        ("f", "1.5", 1.5),
        *(("i", text, 100) for text in ("1e2", "100", "100.0", "1.0E+2", 1e2, "10000e-2")),
        ("u", "18446744073709551615", 2**64 - 1),
        ("u", "1.8446744073709551615e19", 2**64 - 1),
        *(("b", text, b"\xfb\xff") for text in ("-_8=", "-_8", "+/8=", "+/8")),
        ("b", "", b""),
        *(("d", text, None) for text in ("1,5", " 1", "1.", ".5", "0x1", "1e999999", "1_0", "nan", "\u0661")),
        ("d", "1.00000000000000000001", None),
        *(("i", text, None) for text in ("0.5", "1e-1", "1e40", "2147483648", "1e10", "", "-", "1e2147483648")),
        *(("b", text, None) for text in ("A", "AQI=\n", "A===", "+_8\u0000", "A Q I")),
    ],
)
def test_texts_of_numbers_and_bytes_are_those_of_protojson(kind: str, value: object, expected: object) -> None:
    field = SimpleNamespace(type=NUMBERS[kind])
    if expected is None:
        with pytest.raises(Mismatch):
            scalar(field, value)
    else:
        assert scalar(field, value) == expected


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_any_that_cannot_be_read_is_rejected(bomb: bytes) -> None:
    with pytest.raises(MessageRejected, match=r"NotProtobuf|TooDeep"):
        CODEC.read(as_field(bomb))


def test_value_of_nan_is_rejected() -> None:
    with pytest.raises(MessageRejected, match="NotProtobuf"):
        CODEC.read(as_field(struct_pb2.Value(number_value=float("nan")).SerializeToString(), 2))


@pytest.mark.parametrize(
    "value",
    [
        {"@type": _ANY, "value": {"@type": "x"}},
        {"@type": 5},
        {"@type": "type.googleapis.com/acme.Unknown"},
        {"value": 1},
        [[]],
        {"@type": "type.googleapis.com/google.protobuf.Timestamp", "value": "9999999-01-01T00:00:00Z"},
    ],
)
def test_any_that_cannot_be_written_is_rejected(value: object) -> None:
    with pytest.raises(MessageRejected, match="SchemaViolated"):
        CODEC.write({"any": value})
