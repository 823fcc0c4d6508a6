"""Small bodies that once took seconds or gigabytes, each with its editor and the files of that editor."""

import gzip
import json
import zlib
from typing import Any, NamedTuple

from shared.codecs.avro import AvroSchema
from tests.unit.codecs.test_protobuf import BOMBS as ANY_BOMBS
from tests.unit.codecs.test_protobuf import as_field, descriptors

KIB = 1024
_SYNC = b"s" * 16


class Bomb(NamedTuple):
    """A body and the editor that it attacks."""

    step: dict[str, Any]
    body: bytes
    files: dict[str, bytes] = {}  # noqa: RUF012 - nothing changes it


def _long(value: int) -> bytes:
    value <<= 1
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def _container(schema: Any, count: int, block: bytes, codec: bytes = b"null") -> bytes:
    meta = AvroSchema(b'{"type": "map", "values": "bytes"}').write(
        {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec}
    )
    if codec == b"deflate":
        deflate = zlib.compressobj(9, wbits=-15)
        block = deflate.compress(block) + deflate.flush()
    return b"".join((b"Obj\x01", meta, _SYNC, _long(count), _long(len(block)), block, _SYNC))


_NULLS = [{"name": f"n{number}", "type": "null"} for number in range(95)]
_RECORD = {"type": "record", "name": "R", "fields": [{"name": "b", "type": "boolean"}, *_NULLS]}
_LISTS = {"type": "record", "name": "L", "fields": [{"name": "l", "type": {"type": "array", "items": _RECORD}}]}
_DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 1_000_000, "scale": 0}
_SIZE = 200_000


def _avro(content: bytes) -> Bomb:
    return Bomb({"transcode": {"from": "avro", "to": "json"}}, content)


def _cbor(content: bytes) -> Bomb:
    return Bomb({"transcode": {"from": "cbor", "to": "json"}}, content)


def _transform(expression: str, value: Any) -> Bomb:
    return Bomb({"transform": {"expression": expression}}, json.dumps(value).encode())


def _schema(schema: Any, value: Any) -> Bomb:
    step = {"validate": {"schema": "schema.json"}}
    return Bomb(step, json.dumps(value).encode(), {"schema.json": json.dumps(schema).encode()})


REJECTED: dict[str, Bomb] = {
    "avro-container-of-nested-records": _avro(
        _container(_LISTS, 1, _long(_SIZE) + b"\x00" * _SIZE + b"\x00", b"deflate")
    ),
    "avro-container-that-inflates": _avro(_container("bytes", 1, b"\x00" * 60_000_000, b"deflate")),
    "avro-decimal-of-a-huge-precision": _avro(_container(_DECIMAL, 1, _long(_SIZE) + b"\x7f" * _SIZE)),
    "cbor-bignum-in-a-decimal-fraction": _cbor(b"\xc4\x82\x00\xc2\x5a" + _SIZE.to_bytes(4) + b"\xff" * _SIZE),
    "jmespath-replace": _transform("replace(a, 'x', b)", {"a": "x" * 50 * KIB, "b": "y" * 50 * KIB}),
    "jmespath-nested-map": _transform("map(&map(&@, `" + json.dumps(list(range(2000))) + "`), a)", {"a": [0] * 50_000}),
    "json-schema-unique-objects": _schema(
        {"properties": {"a": {"uniqueItems": True}}}, {"a": [{"k": number} for number in range(3500)]}
    ),
    "json-schema-nested-quantifiers": _schema({"pattern": "^(a+)+$"}, "a" * 40 + "!"),
    "gzip-that-becomes-large": Bomb({"decompress": {"encoding": "gzip"}}, gzip.compress(bytes(17 * KIB * KIB))),
    "protobuf-any": Bomb(
        {"transcode": {"from": {"format": "protobuf", "descriptors": "d.pb", "message": "acme.Order"}, "to": "json"}},
        as_field(ANY_BOMBS["an Any in an Any, 2,000 times"]),
        {"d.pb": descriptors()},
    ),
    "split-with-large-properties": Bomb({"split": {}}, b"[" + b"1," * 9999 + b"1]"),
}
"""Those that must be rejected."""
HARMLESS: dict[str, Bomb] = {
    "gzip-of-many-members": Bomb(
        {"decompress": {"encoding": "gzip"}}, gzip.compress(bytes(15 * KIB * KIB)) + gzip.compress(b"") * 990
    ),
    "many-empty-lists-in-json": Bomb({"transcode": {"from": "json", "to": "cbor"}}, b"[" + b"[]," * 80_000 + b"1]"),
}
"""Those that may be read, but quickly."""
