"""Small bodies that once took seconds or gigabytes, each with its editor and the files of that editor."""

import base64
import gzip
import json
import random
import zlib
from typing import Any, NamedTuple

import brotli
import zstandard

from shared.amqp.values import Value, int_, string
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
        block = zlib.compress(block, 1, wbits=-15)
    return b"".join((b"Obj\x01", meta, _SYNC, _long(count), _long(len(block)), block, _SYNC))


_INFLATING = gzip.compress(bytes(17 * KIB * KIB), 1)
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
    "json-schema-nested-quantifiers": _schema({"pattern": "^(a+)+$"}, "a" * 40 + "!"),
    "gzip-that-becomes-large": Bomb({"decompress": {"encoding": "gzip"}}, _INFLATING),
    "protobuf-any": Bomb(
        {"transcode": {"from": {"format": "protobuf", "descriptors": "d.pb", "message": "acme.Order"}, "to": "json"}},
        as_field(ANY_BOMBS["an Any in an Any, 2,000 times"]),
        {"d.pb": descriptors()},
    ),
    "split-with-large-properties": Bomb({"split": {}}, b"[" + b"1," * 9999 + b"1]"),
}
"""Those that must be rejected."""
HARMLESS: dict[str, Bomb] = {
    "json-schema-unique-objects": _schema(
        {"properties": {"a": {"uniqueItems": True}}}, {"a": [{"k": number} for number in range(3500)]}
    ),
    "gzip-of-many-members": Bomb(
        {"decompress": {"encoding": "gzip"}}, gzip.compress(bytes(15 * KIB * KIB), 1) + gzip.compress(b"") * 990
    ),
    "many-empty-lists-in-json": Bomb({"transcode": {"from": "json", "to": "cbor"}}, b"[" + b"[]," * 80_000 + b"1]"),
}
"""Those that may be read, but quickly."""

_LIMIT = 250 * KIB


def _filled(piece: bytes, start: bytes = b"", end: bytes = b"") -> bytes:
    return start + piece * ((_LIMIT - len(start) - len(end)) // len(piece)) + end


def _header(**fields: Any) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(fields).encode()).rstrip(b"=")


_PROTECTED = _header(alg="PBES2-HS512+A256KW", enc="A256GCM", p2c=2**31 - 1, p2s="x" * 22, kid="k1")

BODIES: dict[str, bytes] = {
    "array of arrays": _filled(b"[],", b"[", b"1]"),
    "array of objects": _filled(b'{"id":"a","sku":"x"},', b"[", b"{}]"),
    "order with many lines": _filled(b'{"sku":"x","count":1,"price":1.5},', b'{"id":"a","lines":[', b"{}]}"),
    "nested arrays": b"[" * 900 + b"]" * 900,
    "nested objects": b'{"a":' * 900 + b"1" + b"}" * 900,
    "very deep": b"[" * 120_000 + b"]" * 120_000,
    "names of an object": json.dumps({f"n{number}": number for number in range(16_000)}).encode(),
    "long text": json.dumps({"id": "a" * (_LIMIT - 100)}).encode(),
    "escapes in a text": _filled(b"\\u00e9", b'{"id":"', b'"}'),
    "long number": _filled(b"9", b'{"id":', b"}"),
    "large exponent": b'{"id": 1e400000000, "amount": -1e-400000000}',
    "lines of JSON": _filled(b"{}\n"),
    "long runs of spaces": _filled(b" ", b'{"id":', b"1}"),
    "text for nested quantifiers": json.dumps("a" * 5_000 + "!").encode(),
    "event with large data": b'{"specversion":"1.0","id":"1","source":"s","type":"t","data_base64":"'
    + b"QUJD" * 60_000
    + b'"}',
    "events": _filled(b'{"specversion":"1.0","id":"1","source":"s","type":"t","data":[]},', b"[", b"{}]"),
    "token with a costly key derivation": _PROTECTED
    + b"."
    + b"A" * 54
    + b"."
    + b"A" * 16
    + b"."
    + b"A" * 22
    + b"."
    + b"A" * 22,
    "token with many parts": _filled(b"."),
    "token with a large header": _header(alg="dir", enc="A256GCM", kid="k1", crit=["x"] * 20_000) + b".....",
    "claim with a long name": json.dumps(
        {
            "claim-check": 1,
            "container": "c",
            "blob": "a/" * 50_000 + "..",
            "size": 2**60,
            "sha256": "0",
            "form": "data",
            "content_type": None,
        }
    ).encode(),
    "gzip": _INFLATING,
    "zstd": zstandard.compress(bytes(17 * KIB * KIB)),
    "brotli": brotli.compress(bytes(17 * KIB * KIB), quality=1),
    "Avro container": _container(_LISTS, 1, _long(_SIZE) + b"\x00" * _SIZE + b"\x00", b"deflate"),
    "Avro container of many": _container("null", 2**40, b""),
    "CBOR of nested arrays": b"\x81" * 900 + b"\x01",
    "CBOR of an endless array": b"\x9f" + b"\x80" * 200_000,
    "CBOR that shares a value": b"\xd8\x1c\x84" + b"\xd8\x1d\x00" * 4,
    "MessagePack of empty arrays": b"\xdd" + (200_000).to_bytes(4) + b"\x90" * 200_000,
    "XML with entities": b"<!DOCTYPE a [<!ENTITY b '" + b"c" * 1000 + b"'>]><a>" + b"&b;" * 50_000 + b"</a>",
    "XML of nested elements": b"<a>" * 30_000 + b"</a>" * 30_000,
    "XML of many attributes": b"<a " + b" ".join(b"a%d='1'" % number for number in range(15_000)) + b"/>",
    "random bytes": random.Random(1).randbytes(_LIMIT),
}
"""Bodies of up to 250 KiB that cost as much as they can."""

PROPERTIES: dict[str, dict[str, Value]] = {
    "many properties": {f"name-{number}": int_(number) for number in range(3000)},
    "long properties": {name: string("x" * 60_000) for name in ("id", "country", "amount", "priority")},
    "long path": {"repl-path": string("site;" * 12_000)},
    "tokens in properties": {
        "repl-signature": string("." * 60_000),
        "repl-chain": string("e30" * 20_000),
        "repl-attestation": string("e30." * 15_000),
        "claim-check": string("a/" * 30_000),
    },
}
"""Properties that do."""
