"""
What happens to each part of a message on its way, found out by sending one through the real code.

The first step is `local.host.dotnet_message`, our copy of what Azure's host does to a message; the second is Busway.
`python -m tests.fidelity` prints the table that stands in the README; tests/contracts/test_fidelity.py compares.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from local.host.dotnet_message import reencode
from local.host.dotnet_values import CannotBind, CannotReceive
from shared.amqp import sections
from shared.amqp.codec import decode_all, encode, items_of, pairs_of
from shared.amqp.scan import join_list, join_map, list_fields, map_entries
from shared.amqp.sections import Sections
from shared.amqp.values import (
    NULL,
    TRUE,
    Array,
    Value,
    array,
    binary,
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
from shared.amqp.values import uuid as amqp_uuid
from shared.message import Message, Origin
from shared.metadata import stamp

NOW = 1_900_000_000_000
ENQUEUED = NOW - 5_000
A_DECIMAL = bytes.fromhex("30400000000000000000000000003039")

PROPERTIES: dict[str, Value] = {
    "null": NULL,
    "boolean": TRUE,
    "ubyte (.NET byte)": ubyte(200),
    "byte (.NET sbyte)": byte(-100),
    "ushort": ushort(60_000),
    "short": short(-30_000),
    "uint": uint(4_000_000_000),
    "int": int_(-2_000_000_000),
    "ulong": ulong(2**64 - 1),
    "long": long(-(2**62)),
    "float": float32(1.5),
    "double": double(0.1),
    "decimal128 (.NET decimal)": decimal128(A_DECIMAL),
    "decimal64": Value(0x84, bytes.fromhex("31c0000000003039")),
    "decimal32": Value(0x74, bytes.fromhex("32803039")),
    "char": char("é"),
    "timestamp (.NET DateTime)": timestamp(NOW),
    "uuid (.NET Guid)": amqp_uuid(uuid.UUID(int=7)),
    "string": string("Grüße"),
    "symbol": symbol("fast"),
    "com.microsoft:uri": described(symbol("com.microsoft:uri"), string("https://example.com/")),
    "com.microsoft:timespan": described(symbol("com.microsoft:timespan"), long(600_000_000)),
    "com.microsoft:datetime-offset": described(symbol("com.microsoft:datetime-offset"), long(638_000_000_000_000_000)),
    "another described type": described(symbol("example:temperature"), double(21.5)),
    "binary (Event Hubs only)": binary(b"\x00\xff"),
    "list, map or array": list_([int_(1)]),
}

BODIES: dict[str, bytes] = {
    "one data section": sections.data(b"\x00\xff body"),
    "several data sections": sections.data(b"one") + sections.data(b"two"),
    "an empty data section": sections.data(b""),
    "no body at all": b"",
    "value: string": b"\x00\x53\x77" + encode(string("text")),
    "value: binary": b"\x00\x53\x77" + encode(binary(b"\x00\xff")),
    "value: map": b"\x00\x53\x77" + encode(map_([(string("a"), int_(1))])),
    "value: array of ints": b"\x00\x53\x77" + encode(array(0x71, [Value(0x71, 1)])),
    "value: null": b"\x00\x53\x77\x40",
    "sequences": b"\x00\x53\x76" + encode(list_([int_(1)])) + b"\x00\x53\x76" + encode(list_([string("b")])),
}

FIELDS: dict[str, tuple[int, Value]] = {
    "message-id: string": (0, string("id-1")),
    "message-id: uuid": (0, amqp_uuid(uuid.UUID(int=7))),
    "message-id: ulong": (0, ulong(7)),
    "user-id": (1, binary(b"user")),
    "to": (2, string("to")),
    "subject": (3, string("subject")),
    "reply-to": (4, string("reply")),
    "correlation-id: string": (5, string("correlation")),
    "content-type": (6, symbol("application/json")),
    "content-encoding": (7, symbol("gzip")),
    "absolute-expiry-time": (8, timestamp(NOW + 60_000)),
    "creation-time": (9, timestamp(NOW - 60_000)),
    "session id (group-id)": (10, string("session")),
    "group-sequence": (11, uint(7)),
    "reply-to session id": (12, string("reply-session")),
}

HEADER_FIELDS: dict[str, tuple[int, Value]] = {
    "durable": (0, TRUE),
    "priority": (1, ubyte(7)),
    "time to live": (2, uint(90_500)),
    "first-acquirer": (3, TRUE),
    "delivery-count": (4, uint(2)),
}

ANNOTATIONS: dict[str, Value] = {
    "x-opt-partition-key": string("key"),
    "an annotation of the sender's": string("mine"),
    "x-opt-enqueued-time": timestamp(ENQUEUED),
    "x-opt-sequence-number": long(41),
    "x-opt-locked-until": timestamp(NOW),
    "x-opt-scheduled-enqueue-time": timestamp(ENQUEUED),
    "x-opt-via-partition-key": string("key"),
}


@dataclass(frozen=True)
class Row:
    """One line of the table: what is sent, what Azure's host hands over, what Busway sends on."""

    part: str
    name: str
    host: str
    busway: str

    def __str__(self) -> str:
        """Return the row as Markdown."""
        return f"| {self.part} | {self.name} | {self.host} | {self.busway} |"


def sent_by_busway(content: bytes) -> Sections:
    """Return what Busway sends for a message that it received as *content*, stamps included."""
    message = Message.received(content, Origin("west", "orders"))
    stamp(message)
    return sections.split(message.encode())


def rows() -> list[Row]:
    """Return every row, in the order of the README."""
    found = []
    for name, value in PROPERTIES.items():
        pair = encode(string("p")) + encode(value)
        original = Sections(application_properties=join_map(b"\x00\x53\x74", [pair], 1), body=sections.data(b"x"))
        found.append(_row("property", name, original, lambda each: entry(each.application_properties, "p")))
    for name, value in ANNOTATIONS.items():
        key = name if name.startswith("x-opt") else "mine"
        pair = encode(symbol(key)) + encode(value)
        original = Sections(message_annotations=join_map(b"\x00\x53\x72", [pair], 1), body=sections.data(b"x"))
        found.append(_row("annotation", name, original, partial(annotation, key)))
    for name, (index, value) in FIELDS.items():
        fields = [b"\x40"] * index + [encode(value)]
        original = Sections(properties=join_list(b"\x00\x53\x73", fields), body=sections.data(b"x"))
        found.append(_row("broker property", name, original, partial(property_field, index)))
    for name, (index, value) in HEADER_FIELDS.items():
        fields = [b"\x40"] * index + [encode(value)]
        original = Sections(header=join_list(b"\x00\x53\x70", fields), body=sections.data(b"x"))
        found.append(_row("header", name, original, partial(header_field, index)))
    found += [_row("body", name, Sections(body=body), lambda each: each.body) for name, body in BODIES.items()]
    footer = Sections(
        body=sections.data(b"x"), footer=join_map(b"\x00\x53\x78", [encode(symbol("f")) + encode(int_(1))], 1)
    )
    found.append(_row("footer", "an entry", footer, lambda each: entry(each.footer, "f")))
    delivery = Sections(
        delivery_annotations=join_map(b"\x00\x53\x71", [encode(symbol("d")) + encode(int_(1))], 1),
        body=sections.data(b"x"),
    )
    found.append(_row("delivery annotation", "an entry", delivery, lambda each: entry(each.delivery_annotations, "d")))
    return found


def annotation(name: str, message: Sections) -> bytes:
    """Return the encoded value of a message annotation."""
    return entry(message.message_annotations, name)


def property_field(index: int, message: Sections) -> bytes:
    """Return an encoded field of the properties."""
    return field(message.properties, index)


def header_field(index: int, message: Sections) -> bytes:
    """Return an encoded field of the header."""
    return field(message.header, index)


def entry(section: bytes, name: str) -> bytes:
    """Return the encoded value of an entry of a map, empty when it is not there."""
    if section:
        _, start = sections.descriptor(section, 0)
        for key, _, value_start, stop in map_entries(section, start, len(section)):
            if key == name:
                return section[value_start:stop]
    return b""


def field(section: bytes, index: int) -> bytes:
    """Return an encoded field of a list, empty when it is null or not there."""
    if section:
        _, start = sections.descriptor(section, 0)
        fields = list_fields(section, start, len(section))
        if len(fields) > index and fields[index] != b"\x40":
            return fields[index]
    return b""


def _row(part: str, name: str, original: Sections, look: Callable[[Sections], bytes]) -> Row:
    wire = original.encode()
    try:
        handed = sections.split(reencode(wire, NOW))
    except (CannotBind, CannotReceive):
        # Without the host's step Busway gets the wire's bytes: in the stock binding's place, or under `--wire`.
        return Row(
            part, name, "**refused**: the function is not called", _told(look(original), look(sent_by_busway(wire)))
        )
    host = _told(look(original), look(handed))
    if not look(handed):
        return Row(part, name, host, "-")
    return Row(part, name, host, _told(look(handed), look(sent_by_busway(handed.encode()))))


def _told(before: bytes, after: bytes) -> str:
    """Say in a word what became of an encoded part."""
    if before == after:
        return "kept"
    if not after:
        return "dropped"
    if before[:2] == b"\x00\x53" and after[:2] == b"\x00\x53":
        old, new = sections.body_parts(before), sections.body_parts(after)
        if [(number, _unencoded(value)) for number, value in old] == [(n, _unencoded(value)) for n, value in new]:
            return "kept"
        return "an empty data section"
    if not before:
        return "an empty data section"
    first, second = decode_all(before), decode_all(after)
    if _unencoded(first) == _unencoded(second):
        return "kept"
    if first.kind == second.kind:
        return "set anew"
    return f"becomes {second.kind}"


def _unencoded(value: Value) -> object:
    """Return kind and content of a value, whatever the width it is encoded with."""
    payload = value.payload
    if isinstance(payload, Array):
        return (value.kind, [_unencoded(item) for item in payload.items])
    if value.kind == "list":
        return (value.kind, [_unencoded(item) for item in items_of(value)])
    if value.kind == "map":
        return (value.kind, [(_unencoded(key), _unencoded(item)) for key, item in pairs_of(value)])
    return (value.kind, payload)


def table() -> str:
    """Return the table as it stands in the README."""
    lines = ["| part | what is sent | what Azure's host hands over | what Busway sends of that |", "|---|---|---|---|"]
    return "\n".join([*lines, *map(str, rows())])


if __name__ == "__main__":
    print(table())  # noqa: T201 - this is what the module is run for
