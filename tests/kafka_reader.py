"""How a reader gets a message back from a Kafka record, as docs/kafka.md describes it."""

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from shared.amqp.codec import decode_all, encode
from shared.amqp.values import (
    NULL,
    Value,
    binary,
    boolean,
    byte,
    char,
    double,
    float32,
    int_,
    long,
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

_READERS: dict[str, Callable[[str], Value]] = {
    "string": string,
    "symbol": symbol,
    "char": char,
    "boolean": lambda text: boolean({"true": True, "false": False}[text]),
    "ubyte": lambda text: ubyte(int(text)),
    "ushort": lambda text: ushort(int(text)),
    "uint": lambda text: uint(int(text)),
    "ulong": lambda text: ulong(int(text)),
    "byte": lambda text: byte(int(text)),
    "short": lambda text: short(int(text)),
    "int": lambda text: int_(int(text)),
    "long": lambda text: long(int(text)),
    "float": lambda text: float32(float(text)),
    "double": lambda text: double(float(text)),
    "uuid": lambda text: uuid_(uuid.UUID(text)),
    "timestamp": lambda text: timestamp(round(datetime.fromisoformat(text).timestamp() * 1000)),
}
# The place of a header in `tests.fidelity.parts`, and the type that it has unless repl-types has another.
_PLACES = {
    "amqp-durable": ("header 0", "boolean"),
    "amqp-priority": ("header 1", "ubyte"),
    "amqp-ttl": ("header 2", "uint"),
    "amqp-message-id": ("field 0", "string"),
    "amqp-user-id": ("field 1", "binary"),
    "amqp-to": ("field 2", "string"),
    "amqp-subject": ("field 3", "string"),
    "amqp-reply-to": ("field 4", "string"),
    "amqp-correlation-id": ("field 5", "string"),
    "content-type": ("field 6", "symbol"),
    "amqp-content-encoding": ("field 7", "symbol"),
    "amqp-absolute-expiry-time": ("field 8", "timestamp"),
    "amqp-creation-time": ("field 9", "timestamp"),
    "amqp-group-id": ("field 10", "string"),
    "amqp-group-sequence": ("field 11", "uint"),
    "amqp-reply-to-group-id": ("field 12", "string"),
}
_DATA, _VALUE = b"\x00\x53\x75", b"\x00\x53\x77"


def value_of(header: bytes | None, kind: str) -> Value:
    """Return the value of a header of the form `text`, whose type is *kind*."""
    if header is None:
        return NULL
    if kind == "amqp":
        return decode_all(header)
    return binary(header) if kind == "binary" else _READERS[kind](header.decode())


def parts_of(value: bytes | None, headers: Mapping[str, bytes | None]) -> dict[str, bytes]:
    """Return the parts of the message in a record, as `tests.fidelity.parts` names them."""
    types: dict[str, str] = json.loads(headers.get("repl-types") or b"{}")
    is_encoded = "AMQPheaders" in headers
    found = {}
    for name, header in headers.items():
        if name in {"repl-types", "AMQPheaders", "amqp-body"}:
            continue
        if name == "amqp-footer":
            found["footer f"] = _footer(header or b"")
            continue
        place, usual = _PLACES.get(name, (None, "string"))
        if place is None:
            place = f"annotation {name[5:]}" if name.startswith("amqp-") else f"property {name}"
        found[place] = (header or b"") if is_encoded else encode(value_of(header, types.get(name, usual)))
    body = headers.get("amqp-body")
    if value is None:
        found["body"] = _VALUE + encode(NULL)
    elif body is None:
        found["body"] = _DATA + encode(binary(value))
    else:
        found["body"] = value if body == b"amqp" else _VALUE + encode(value_of(value, body.decode()))
    return found


def _footer(section: bytes) -> bytes:
    pairs: Any = decode_all(section).payload
    [(_, value)] = pairs.value.payload
    return encode(value)


def read_topic(options: Mapping[str, Any], topic: str, partitions: int) -> Sequence[Any]:
    """Return all records of a topic, those of a partition in their order."""
    consumer = Consumer({**options, "group.id": "tests", "enable.partition.eof": True, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found, ended = [], 0
    while ended < partitions:
        message = consumer.poll(20)
        assert message is not None, "no answer"
        if message.error() is None:
            found.append(message)
        else:
            assert message.error().name() == "_PARTITION_EOF", message.error()
            ended += 1
    consumer.close()
    return found
