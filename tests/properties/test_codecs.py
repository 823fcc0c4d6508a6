"""Codecs and compression: written values round-trip, and any bytes raise only MessageRejected."""

import contextlib
import datetime as dt
import json
import math
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from hypothesis import example, given
from hypothesis import strategies as st

from shared.codecs.avro import AvroSchema, RawAvro, SingleObject
from shared.codecs.avro_container import Container, read_container, write_container
from shared.codecs.cbor import Cbor
from shared.codecs.compression import Encoding, Limits, compressor, decompressor, inflate
from shared.codecs.message_pack import MessagePack
from shared.codecs.plain_json import PlainJson
from shared.codecs.protobuf import Protobuf
from shared.codecs.xml import Xml
from shared.errors import MessageRejected

texts = st.text(max_size=12)
scalars = st.none() | st.booleans() | texts | st.floats(allow_nan=False, allow_infinity=False)
longs = st.integers(-(2**63), 2**63 - 1)
huge = st.integers(-(10**40), 10**40)
decimals = st.decimals(allow_nan=False, allow_infinity=False)
instants = st.datetimes(min_value=dt.datetime(1970, 1, 1), timezones=st.just(dt.UTC))  # noqa: DTZ001 - the zone is the other argument


def trees(leaves: Any) -> Any:
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4), max_leaves=15
    )


TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "whole", "type": "int"},
        {"name": "long", "type": {"type": "map", "values": "long"}},
        {"name": "double", "type": ["null", "double"], "default": None},
        {"name": "text", "type": ["null", "long", "string", "boolean", {"type": "array", "items": "string"}]},
        {"name": "bytes", "type": "bytes"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 4}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "parts", "type": {"type": "array", "items": "Tree"}},
    ],
}
prices = st.integers(-(10**30) + 1, 10**30 - 1).map(
    lambda units: Decimal((units < 0, tuple(map(int, str(abs(units)))), -4))
)
avro_trees: st.SearchStrategy = st.deferred(
    lambda: st.fixed_dictionaries(
        {
            "whole": st.integers(-(2**31), 2**31 - 1),
            "long": st.dictionaries(texts, longs, max_size=3),
            "double": st.none() | st.floats(allow_nan=False, allow_infinity=False),
            "text": st.none() | longs | texts | st.booleans() | st.lists(texts, max_size=3),
            "bytes": st.binary(max_size=8),
            "price": prices,
            "day": st.dates(),
            "at": instants,
            "key": st.uuids(),
            "kind": st.sampled_from("AB"),
            "parts": st.lists(avro_trees, max_size=1),
        }
    )
)


def schema_of(document: Any) -> AvroSchema:
    return AvroSchema(json.dumps(document).encode())


def descriptors() -> bytes:
    file = descriptor_pb2.FileDescriptorProto(name="t.proto", package="t", syntax="proto3")
    tree = file.message_type.add(name="Tree")
    kinds = {"text": 9, "wide": 3, "unsigned": 13, "ratio": 1, "small": 2, "raw": 12, "yes": 8}
    for number, (name, kind) in enumerate(kinds.items(), 1):
        tree.field.add(name=name, json_name=name, number=number, type=kind, label=1)
    tree.field.add(name="child", json_name="child", number=8, type=11, label=1, type_name=".t.Tree")
    tree.field.add(name="tags", json_name="tags", number=9, type=9, label=3)
    return descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


single = st.floats(width=32, allow_nan=False, allow_infinity=False).map(
    lambda x: struct.unpack("f", struct.pack("f", x))[0]
)
# Fields with their default values are not written.
proto_trees: st.SearchStrategy = st.deferred(
    lambda: st.fixed_dictionaries(
        {},
        optional={
            "text": st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9),
            "wide": longs.filter(bool),
            "unsigned": st.integers(1, 2**32 - 1),
            "ratio": st.floats(allow_nan=False).filter(bool),
            "raw": st.binary(min_size=1, max_size=9),
            "yes": st.just(value=True),
            "child": proto_trees,
            "tags": st.lists(st.text(max_size=5), min_size=1, max_size=3),
        },
    )
)

SCHEMA = schema_of(TREE)
PROTOBUF = Protobuf(descriptors(), "t.Tree", beside_json=False)
ENCODINGS: tuple[Encoding, ...] = ("gzip", "zstd", "brotli")
READERS: dict[str, Callable[[bytes], object]] = {
    "json": PlainJson().read,
    "cbor": Cbor().read,
    "messagepack": MessagePack().read,
    "xml": Xml().read,
    "raw": RawAvro(SCHEMA).read,
    "single": lambda content: SingleObject(SCHEMA).read(b"\xc3\x01" + SCHEMA.fingerprint + content),
    "container": lambda content: Container(None).read(b"Obj\x01" + content),
    "protobuf": PROTOBUF.read,
    "deflate": lambda content: inflate(content, Limits(10_000)),
    **{encoding: decompressor(encoding, Limits(10_000)) for encoding in ENCODINGS},
}


@given(value=trees(scalars | huge | decimals))
def test_json_round_trips(value: Any) -> None:
    codec = PlainJson()
    written = codec.write(value)
    assert same_numbers(codec.read(written), value)
    assert codec.write(codec.read(written)) == codec.write(codec.read(codec.write(codec.read(written))))


@given(value=trees(scalars | huge | decimals | st.binary(max_size=9) | instants | st.uuids()))
def test_cbor_round_trips(value: Any) -> None:
    assert Cbor().read(Cbor().write(value)) == value


@given(value=trees(scalars | longs | st.binary(max_size=9)))
def test_messagepack_round_trips(value: Any) -> None:
    assert MessagePack().read(MessagePack().write(value)) == value


@given(value=trees(scalars | longs))
def test_json_round_trips_through_every_format_without_a_schema(value: Any) -> None:
    written = PlainJson().write(value)
    for codec in (Cbor(), MessagePack()):
        through = codec.read(codec.write(PlainJson().read(written)))
        assert PlainJson().write(through) == written


@given(value=avro_trees)
def test_avro_round_trips_also_through_json(value: Any) -> None:
    for codec in (RawAvro(SCHEMA), SingleObject(SCHEMA), Container(SCHEMA)):
        written = codec.write(value)
        assert codec.read(written) == value
        assert codec.write(PlainJson().read(PlainJson().write(codec.read(written)))) == written


@given(values=st.lists(avro_trees, max_size=3))
def test_container_has_any_number_of_values(values: Any) -> None:
    content = write_container(SCHEMA, values)
    assert read_container(content) == read_container(content, SCHEMA) == values


@given(value=proto_trees)
def test_protobuf_round_trips_also_through_json(value: Any) -> None:
    written = PROTOBUF.write(value)
    assert PROTOBUF.read(written) == value
    beside_json = Protobuf(descriptors(), "t.Tree")
    assert beside_json.write(PlainJson().read(PlainJson().write(beside_json.read(written)))) == written


@given(value=single.filter(bool))
def test_protobuf_writes_a_float_in_the_fewest_digits(value: Any) -> None:
    read = PROTOBUF.read(PROTOBUF.write({"small": value}))["small"]
    assert struct.pack("f", read) == struct.pack("f", value)
    assert len(repr(read)) <= len(repr(value))


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(content=st.binary(max_size=400) | st.binary(max_size=5).map(lambda piece: piece * 3000))
def test_compressed_content_is_decompressed(encoding: Any, content: bytes) -> None:
    compressed = compressor(encoding, 5)(content)
    assert decompressor(encoding, Limits(20_000))(compressed) == content


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(content=st.binary(max_size=60), data=st.data())
def test_truncated_compressed_content_is_rejected(encoding: Any, content: bytes, data: st.DataObject) -> None:
    compressed = compressor(encoding, 5)(content)
    end = data.draw(st.integers(0, len(compressed) - 1))
    with pytest.raises(MessageRejected):
        decompressor(encoding, Limits(20_000))(compressed[:end])


@pytest.mark.parametrize("name", READERS)
@example(content=b"")
@example(content=b"\x02" * 100_000)
@example(content=b"\x81" * 100_000)
@example(content=b"\x91" * 100_000)
@example(content=b"[" * 100_000)
@example(content=b"<a>" * 50_000)
@example(content=b"\x42" * 100_000)
@example(content=b"\xff" * 40)
@given(content=st.binary(max_size=60))
def test_any_bytes_raise_only_message_rejected(name: str, content: bytes) -> None:
    with contextlib.suppress(MessageRejected):
        READERS[name](content)


def same_numbers(found: Any, expected: Any) -> bool:
    """Compare; a Decimal that a double holds may be one."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same_numbers(found[name], expected[name]) for name in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same_numbers, found, expected))
    if isinstance(expected, Decimal) and isinstance(found, float):
        return Decimal(repr(found)) == expected and math.isfinite(found)
    return found == expected and isinstance(found, bool) == isinstance(expected, bool)
