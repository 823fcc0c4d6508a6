"""What brokers keep of each part of a message: the rows of the table in docs/amqp.md, and how they are found."""

import re
import uuid
from collections.abc import Sequence

from shared.amqp.codec import encode
from shared.amqp.scan import join_list, join_map
from shared.amqp.values import (
    NULL,
    TRUE,
    Value,
    binary,
    boolean,
    byte,
    char,
    decimal128,
    described,
    double,
    float32,
    int_,
    list_,
    long,
    map_,
    short,
    string,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
    ushort,
)
from shared.amqp.values import uuid as uuid_
from tests.fidelity.parts import changes, is_same_value, parts
from tests.other_brokers.processes import ROOT

_ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
_HEADER = {"priority": 1, "ttl": 2}
_FIELDS = {
    "message-id": 0,
    "user-id": 1,
    "user-id, of another user": 1,
    "to": 2,
    "subject": 3,
    "reply-to": 4,
    "correlation-id": 5,
    "content-type": 6,
    "content-encoding": 7,
    "creation-time": 9,
    "group-id, which is the session id": 10,
    "group-sequence": 11,
    "reply-to-group-id": 12,
}
_VALUES: dict[str, Value] = {
    "header: priority": ubyte(7),
    "header: ttl": uint(3_600_000),
    "message-id": string("m"),
    "user-id": binary(b"busway"),
    "user-id, of another user": binary(b"somebody"),
    "to": string("to"),
    "subject": string("subject"),
    "reply-to": string("reply"),
    "correlation-id": string("c"),
    "content-type": symbol("text/plain"),
    "content-encoding": symbol("gzip"),
    "creation-time": timestamp(1_900_000_000_000),
    "group-id, which is the session id": string("s"),
    "group-sequence": uint(3),
    "reply-to-group-id": string("r"),
    "message-id, ulong": ulong(7),
    "message-id, uuid": uuid_(_ID),
    "message-id, binary": binary(b"\x00\x01"),
    "annotation: x-opt-partition-key": string("k"),
}
_PROPERTIES: dict[str, Value] = {
    "boolean": boolean(True),
    "null": NULL,
    "ubyte": ubyte(1),
    "ushort": ushort(1),
    "uint": uint(70_000),
    "ulong": ulong(2**40),
    "byte": byte(-1),
    "short": short(-1),
    "int": int_(-70_000),
    "long": long(-(2**40)),
    "float": float32(1.5),
    "double": double(1.5),
    "decimal128": decimal128(bytes(16)),
    "char": char("ü"),
    "timestamp": timestamp(1_900_000_000_000),
    "uuid": uuid_(_ID),
    "binary": binary(b"\x00\xff"),
    "string": string("text ü"),
    "symbol": symbol("symbol"),
    "described": described(symbol("com.microsoft:uri"), string("https://example")),
    "list": list_([int_(1)]),
    "map": map_([(string("a"), int_(1))]),
}
_BODIES = {
    "body: one data section": b"\x00\x53\x75" + encode(binary(b"body")),
    "body: two data sections": b"\x00\x53\x75" + encode(binary(b"one")) + b"\x00\x53\x75" + encode(binary(b"two")),
    "body: value, string": b"\x00\x53\x77" + encode(string("text")),
    "body: value, map": b"\x00\x53\x77" + encode(map_([(string("a"), int_(1))])),
    "body: value, null": b"\x00\x53\x77\x40",
    "body: sequence": b"\x00\x53\x76" + encode(list_([int_(1), string("two")])),
    "body: none": b"",
    "body: empty": b"\x00\x53\x75\xa0\x00",
}
ROWS = (
    *_VALUES,
    *(f"property: {kind}" for kind in _PROPERTIES),
    *_BODIES,
    "footer",
)


def specimen(row: str) -> bytes:
    """Return the message of a row, as Busway sends it."""
    header: list[bytes] = [encode(TRUE), b"\x40", b"\x40"]
    fields: list[bytes] = [b"\x40"] * 13
    fields[0] = encode(string("m"))
    named = annotated = footer = b""
    body = _BODIES.get(row, _BODIES["body: one data section"])
    if row.startswith("header: "):
        header[_HEADER[row.removeprefix("header: ")]] = encode(_VALUES[row])
    elif row.startswith("message-id"):
        fields[0] = encode(_VALUES[row])
    elif row in _FIELDS:
        fields[_FIELDS[row]] = encode(_VALUES[row])
    elif row.startswith("annotation: "):
        pair = encode(symbol(row.removeprefix("annotation: "))) + encode(_VALUES[row])
        annotated = join_map(b"\x00\x53\x72", [pair], 1)
    elif row.startswith("property: "):
        pair = encode(string("p")) + encode(_PROPERTIES[row.removeprefix("property: ")])
        named = join_map(b"\x00\x53\x74", [pair], 1)
    elif row == "footer":
        footer = join_map(b"\x00\x53\x78", [encode(symbol("f")) + encode(string("v"))], 1)
    head = join_list(b"\x00\x53\x70", header)
    return head + annotated + join_list(b"\x00\x53\x73", fields) + named + body + footer


def kept(row: str, content: bytes, read: Sequence[bytes]) -> str:
    """Return what happened to the part of a row."""
    if not read:
        return "**not accepted**"
    place = _place(row)
    before, after = parts(content), parts(read[0])
    changed = {each: pair for each, pair in changes(before, after).items() if each == place}
    if not changed:
        return "kept"
    old, new = changed[place]
    if not new:
        return "dropped"
    return "kept" if is_same_value(place, old, new) else "changed"


def page_table() -> dict[str, dict[str, str]]:
    """Return the cells of the table in docs/amqp.md, by column and row."""
    page = (ROOT / "docs/amqp.md").read_text(encoding="utf-8")
    names = ("Artemis", "ActiveMQ", "RabbitMQ3", "RabbitMQ4")
    table: dict[str, dict[str, str]] = {name: {} for name in names}
    for line in re.findall(r"^\| (.+(?: \| .+){4}) \|$", page, re.MULTILINE):
        first, *cells = (each.strip() for each in line.split(" | "))
        for row in _expanded(first):
            if row in ROWS:
                for name, cell in zip(names, cells, strict=True):
                    table[name][row] = cell.partition(" (")[0]
    return table


def _expanded(first: str) -> list[str]:
    """Return the rows of a cell such as `property: int, long`."""
    prefix, separator, rest = first.partition("property: ")
    return [f"property: {kind}" for kind in rest.split(", ")] if separator and not prefix else first.split("; ")


def _place(row: str) -> str:
    kind, _, name = row.partition(": ")
    if kind == "header":
        return f"header {_HEADER[name]}"
    if kind == "annotation":
        return f"annotation {name}"
    if kind == "property":
        return "property p"
    if kind == "footer":
        return "footer f"
    return "body" if kind == "body" else f"field {_FIELDS.get(row, 0)}"
