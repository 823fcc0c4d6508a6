"""One message for each type of property, annotation and body, and for each broker property."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from shared.amqp import sections
from shared.amqp.codec import encode
from shared.amqp.scan import join_list, join_map
from shared.amqp.sections import Sections
from shared.amqp.values import (
    NULL,
    TRUE,
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

SPECIMEN = "specimen"
"""The application property that identifies a specimen."""

MOMENT = 1_700_000_000_123
LIFE = 3_600_500
_A_DECIMAL = bytes.fromhex("30400000000000000000000000003039")

# With the names of .NET if they differ.
SIMPLE: dict[str, Value] = {
    "null": NULL,
    "boolean": TRUE,
    "ubyte (.NET byte)": ubyte(200),
    "byte (.NET sbyte)": byte(-100),
    "ushort": ushort(60_000),
    "short": short(-30_000),
    "uint": uint(4_000_000_000),
    "int": int_(-2_000_000_000),
    "an int of four bytes": Value(0x71, 5),
    "ulong": ulong(2**64 - 1),
    "long": long(-(2**62)),
    "float": float32(1.5),
    "double": double(0.1),
    "decimal128 (.NET decimal)": decimal128(_A_DECIMAL),
    "decimal64": Value(0x84, bytes.fromhex("31c0000000003039")),
    "decimal32": Value(0x74, bytes.fromhex("32803039")),
    "char": char("é"),
    "timestamp (.NET DateTime)": timestamp(MOMENT),
    "uuid (.NET Guid)": amqp_uuid(uuid.UUID(int=7)),
    "string": string("Grüße"),
    "an empty string": string(""),
    "symbol": symbol("fast"),
    "com.microsoft:uri": described(symbol("com.microsoft:uri"), string("https://example.com/")),
    "com.microsoft:timespan": described(symbol("com.microsoft:timespan"), long(600_000_000)),
    "com.microsoft:datetime-offset": described(symbol("com.microsoft:datetime-offset"), long(638_000_000_000_000_000)),
    "another described type": described(symbol("example:temperature"), double(21.5)),
}
# Types that Service Bus refuses as properties.
COMPOUND: dict[str, Value] = {
    "binary": binary(b"\x00\xff"),
    "list": list_([int_(1), string("a")]),
    "array": array(0x71, [Value(0x71, 1), Value(0x71, 2)]),
    "map": map_([(string("a"), int_(1))]),
}
# What the host reads otherwise than alone: bodies with these inside, and times that pass through a double.
NESTED: dict[str, Value] = {
    "a list with null": list_([int_(1), NULL]),
    "a list with a symbol": list_([symbol("fast")]),
    "a list with a map": list_([map_([(string("a"), int_(1))])]),
    "a map with null": map_([(string("a"), NULL)]),
    "a map with a map": map_([(string("a"), map_([(string("b"), int_(1))]))]),
    "a list with decimal128": list_([decimal128(_A_DECIMAL), list_([decimal128(_A_DECIMAL)])]),
    "a map with decimal128": map_([(string("a"), decimal128(_A_DECIMAL))]),
    "an array of ubyte": array(0x50, [ubyte(1), ubyte(255)]),
    "an array of symbol": array(0xA3, [symbol("fast")]),
}
LATE: dict[str, Value] = {"DateTime.MaxValue, as a timestamp": timestamp(253_402_300_799_999)}
FIELDS: dict[str, tuple[int, Value]] = {
    "message-id: string": (0, string("id-1")),
    "message-id: uuid": (0, amqp_uuid(uuid.UUID(int=7))),
    "message-id: ulong": (0, ulong(7)),
    "message-id: binary": (0, binary(b"\x00\xff")),
    "no message-id": (0, NULL),
    "user-id": (1, binary(b"user")),
    "to": (2, string("to")),
    "subject": (3, string("subject")),
    "reply-to": (4, string("reply")),
    "correlation-id: string": (5, string("correlation")),
    "correlation-id: uuid": (5, amqp_uuid(uuid.UUID(int=8))),
    "correlation-id: ulong": (5, ulong(8)),
    "correlation-id: binary": (5, binary(b"\xff\x00")),
    "content-type": (6, symbol("application/json")),
    "content-encoding": (7, symbol("gzip")),
    "absolute-expiry-time": (8, timestamp(MOMENT + 10**12)),
    "creation-time": (9, timestamp(MOMENT)),
    "session id (group-id)": (10, string("session")),
    "group-sequence": (11, uint(7)),
    "reply-to session id (reply-to-group-id)": (12, string("reply-session")),
}
HEADER_FIELDS: dict[str, tuple[int, Value]] = {
    "durable": (0, TRUE),
    "priority": (1, ubyte(7)),
    "time to live": (2, uint(LIFE)),
    "first-acquirer": (3, TRUE),
}
ANNOTATIONS: dict[str, Value] = {
    "x-opt-partition-key": string("key"),
    "x-opt-scheduled-enqueue-time": timestamp(MOMENT),
    "x-opt-via-partition-key": string("key"),
}
BODIES: dict[str, bytes] = {
    "one data section": sections.data(b"\x00\xff body"),
    "a data section with text": sections.data("a text, žluťoučký".encode()),
    "several data sections": sections.data(b"one") + sections.data(b"two"),
    "an empty data section": sections.data(b""),
    "no body at all": b"",
    "one sequence": b"\x00\x53\x76" + encode(list_([int_(1), string("b")])),
    "a sequence with null": b"\x00\x53\x76" + encode(list_([int_(1), NULL])),
    "several sequences": b"\x00\x53\x76" + encode(list_([int_(1)])) + b"\x00\x53\x76" + encode(list_([string("b")])),
}


@dataclass(frozen=True)
class Specimen:
    """A message that differs from all others in one part; `place` is the name of that part in `parts`."""

    part: str
    name: str
    place: str
    header: Mapping[int, Value] = field(default_factory=dict)
    annotations: Mapping[str, Value] = field(default_factory=dict)
    delivery_annotations: Mapping[str, Value] = field(default_factory=dict)
    properties: Mapping[int, Value] = field(default_factory=dict)
    application_properties: Mapping[str, Value] = field(default_factory=dict)
    footer: Mapping[str, Value] = field(default_factory=dict)
    body: bytes = sections.data(b"body")
    only_hubs: bool = False
    """Whether Service Bus refuses it, or adds the part that it should lack."""

    def encode(self, key: str) -> bytes:
        """Return the message with *key*, and with an id unless the specimen tests the id."""
        properties = {0: string(f"id-{key}"), **self.properties}
        named = {SPECIMEN: string(key), **self.application_properties}
        return Sections(
            header=_list(b"\x00\x53\x70", self.header),
            delivery_annotations=_map(b"\x00\x53\x71", self.delivery_annotations, symbol),
            message_annotations=_map(b"\x00\x53\x72", self.annotations, symbol),
            properties=_list(b"\x00\x53\x73", properties),
            application_properties=_map(b"\x00\x53\x74", named, string),
            body=self.body,
            footer=_map(b"\x00\x53\x78", self.footer, symbol),
        ).encode()


def _list(prefix: bytes, fields: Mapping[int, Value]) -> bytes:
    if not fields:
        return b""
    return join_list(prefix, [encode(fields.get(index, NULL)) for index in range(max(fields) + 1)])


def _map(prefix: bytes, entries: Mapping[str, Value], key: Callable[[str], Value]) -> bytes:
    pairs = [encode(key(name)) + encode(value) for name, value in entries.items()]
    return join_map(prefix, pairs, len(pairs)) if pairs else b""


def _specimens() -> list[Specimen]:
    found = []
    for types, only_hubs in ((SIMPLE | LATE, False), (COMPOUND, True)):
        found += [
            Specimen("property", name, "property p", application_properties={"p": value}, only_hubs=only_hubs)
            for name, value in types.items()
        ]
    found += [
        Specimen("annotation", name, "annotation mine", annotations={"mine": value})
        for name, value in (SIMPLE | COMPOUND).items()
    ]
    found += [
        Specimen("annotation", name, f"annotation {name}", annotations={name: value})
        for name, value in ANNOTATIONS.items()
    ]
    found += [
        Specimen(*("broker property", name, f"field {index}"), properties={index: value}, only_hubs=value == NULL)
        for name, (index, value) in FIELDS.items()
    ]
    found.append(
        Specimen(
            *("broker property", "creation-time of a message with a time to live", "field 9"),
            header={2: uint(LIFE)},
            properties={9: timestamp(MOMENT)},
        )
    )
    found += [
        Specimen("header", name, f"header {index}", header={index: value})
        for name, (index, value) in HEADER_FIELDS.items()
    ]
    found += [Specimen("body", name, "body", body=body) for name, body in BODIES.items()]
    found += [
        Specimen("body: value", name, "body", body=b"\x00\x53\x77" + encode(value))
        for name, value in (SIMPLE | COMPOUND | NESTED | LATE).items()
    ]
    found.append(
        Specimen(
            *("footer", "an entry, after an empty data section", "footer f"),
            footer={"f": int_(1)},
            body=sections.data(b""),
        )
    )
    found.append(Specimen("footer", "an entry", "footer f", footer={"f": int_(1)}))
    found.append(Specimen("delivery annotation", "an entry", "delivery d", delivery_annotations={"d": int_(1)}))
    return found


SPECIMENS: dict[str, Specimen] = {f"s{number}": specimen for number, specimen in enumerate(_specimens())}
