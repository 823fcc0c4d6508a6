"""
The AMQP 1.0 frames of a connection that only sends.

Source: OASIS AMQP 1.0, part 2, section 2.7 (performatives), part 3, section 3.4 (outcomes), and part 5 (SASL).
"""

import re
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from shared.amqp.codec import decode_all, encode, items_of
from shared.amqp.scan import join_list
from shared.amqp.values import (
    FALSE,
    NULL,
    Array,
    Described,
    Malformed,
    Value,
    binary,
    boolean,
    described,
    list_,
    string,
    symbol,
    ubyte,
    uint,
    ulong,
    ushort,
)
from shared.amqp.values import array as array_

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
EMPTY_FRAME = b"\x00\x00\x00\x08\x02\x00\x00\x00"

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
SASL_MECHANISMS, SASL_INIT, _SASL_CHALLENGE, _SASL_RESPONSE, SASL_OUTCOME = range(0x40, 0x45)
RECEIVED, ACCEPTED, REJECTED, RELEASED, MODIFIED = range(0x23, 0x28)
_SOURCE, _TARGET = 0x28, 0x29

LARGEST_FRAME = 65_536
IDLE_SECONDS = 30
_WINDOW = 2**31 - 1
_CONFIGURATION = 1  # the durability of a terminus
_AMQP, _SASL = 0, 1
HEADER_BYTES = 8
# A disposition of a receiver: the first and the last delivery, settled, accepted, and whether it is batchable.
_ACCEPTED = re.compile(
    rb"\x00\x53\x15\xc0..\x41(\x43|\x52.|\x70.{4})(\x40|\x43|\x52.|\x70.{4})\x41\x00\x53\x24\x45([\x40\x41\x42]?)",
    re.DOTALL,
)
# The header of a frame and the longest performative of a transfer.
TRANSFER_OVERHEAD = 8 + 32
# The first transfer of a message: size, fields, number of the delivery, tag, format and settled, whether more follow.
_FIRST = Struct(">I12sI2sI2s1s")
_FIRST_FIELDS, _TAG, _AMQP_UNSETTLED = b"\x02\0\0\0\x00\x53\x14\xc0\x10\x06\x43\x70", b"\xa0\x04", b"\x43\x42"
# Another one: size, fields, whether more follow.
_NEXT = Struct(">I15s1s")
_NEXT_FIELDS = b"\x02\0\0\0\x00\x53\x14\xc0\x07\x06\x43\x40\x40\x40\x42"
_MORE, _LAST = b"\x41", b"\x42"


class AmqpError(Exception):
    """An error that a broker has sent, or what it did instead of what AMQP 1.0 asks for."""

    def __init__(self, condition: str | None, description: str) -> None:
        """Keep the AMQP condition, None without one."""
        super().__init__(f"{condition}: {description}" if condition and description else condition or description)
        self.condition = condition


class Performative(NamedTuple):
    """The code and the fields of a frame; fields that are left out are null."""

    code: int
    fields: tuple[Value, ...]

    def value(self, index: int) -> Value:
        """Return one field."""
        return self.fields[index] if index < len(self.fields) else NULL

    def number(self, index: int, default: int) -> int:
        """Return a whole number, *default* if it is null; another type is Malformed."""
        payload = self.value(index).payload
        if payload is None:
            return default
        if not isinstance(payload, int):
            raise Malformed(f"performative 0x{self.code:02x}: field {index} is no number")
        return payload

    def flag(self, index: int) -> bool:
        """Return whether a field is true."""
        return self.value(index).payload is True


def read_performative(body: bytes) -> Performative | None:
    """Return the performative of a frame's *body*, which may be followed by a payload; None for an empty frame."""
    if not body:
        return None
    # A broker sends no payloads to a link that only sends.
    value = decode_all(body)
    return _described(value)


def error_of(value: Value) -> AmqpError | None:
    """Return the error in a field of a detach, end, close or rejected; None if it is null."""
    if value.payload is None:
        return None
    found = _described(value)
    condition, description = found.value(0).payload, found.value(1).payload
    return AmqpError(str(condition) if condition else None, str(description or ""))


def outcome_of(state: Value) -> Performative | None:
    """Return the outcome in a disposition, None if it has none."""
    return None if state.payload is None else _described(state)


def accepted_range(body: bytes) -> tuple[int, int] | None:
    """
    Return the first and last delivery of a frame that accepts and settles some; None for any other.

    It reads the forms in which brokers write most of them, without decoding each field.
    """
    found = _ACCEPTED.fullmatch(body)
    if found is None or (body[4], body[5]) != (len(body) - 5, 5 + len(found[3])):
        return None
    first = int.from_bytes(found[1][1:])
    return first, first if found[2] == b"\x40" else int.from_bytes(found[2][1:])


def mechanisms_of(performative: Performative) -> list[str]:
    """Return the SASL mechanisms that a broker offers: one, or an array of them."""
    payload = performative.value(0).payload
    values = payload.items if isinstance(payload, Array) else [performative.value(0)]
    return [str(each.payload) for each in values]


def sasl_init(mechanism: str, response: bytes, host: str) -> bytes:
    """Return the frame that chooses a mechanism."""
    return _frame(SASL_INIT, [symbol(mechanism), binary(response), string(host)], _SASL)


def open_frame(container: str, host: str) -> bytes:
    """Return an open."""
    fields = [string(container), string(host), uint(LARGEST_FRAME), ushort(0), uint(IDLE_SECONDS * 1000)]
    return _frame(OPEN, fields)


def begin_frame() -> bytes:
    """Return a begin; transfers are numbered from 0."""
    return _frame(BEGIN, [NULL, uint(0), uint(_WINDOW), uint(_WINDOW), uint(0)])


def attach_frame(name: str, address: str, capability: str | None) -> bytes:
    """Return the attach of a sender; *capability* is `queue` or `topic` (AMQP JMS mapping), None for neither."""
    outcomes = array_(0xA3, [symbol(f"amqp:{each}:list") for each in ("accepted", "rejected", "released", "modified")])
    source = described(ulong(_SOURCE), list_([string(name), uint(0), symbol("session-end"), *[NULL] * 6, outcomes]))
    capabilities = NULL if capability is None else array_(0xA3, [symbol(capability)])
    # RabbitMQ 3 creates the queue of an address such as /queue/orders, and a durable one only for a durable target.
    target = described(ulong(_TARGET), list_([string(address), uint(_CONFIGURATION), *[NULL] * 4, capabilities]))
    # It sends unsettled, and the receiver settles first.
    fields = [string(name), uint(0), FALSE, ubyte(0), ubyte(0), source, target, NULL, NULL, uint(0)]
    return _frame(ATTACH, fields)


def flow_frame(next_incoming: int, next_outgoing: int, link: tuple[int, int, bool] | None) -> bytes:
    """Return a flow of the session, or also of the *link*, by its delivery count, its credit and whether it drains."""
    fields = [uint(next_incoming), uint(_WINDOW), uint(next_outgoing), uint(_WINDOW)]
    if link is not None:
        delivery_count, credit, is_drain = link
        fields += [uint(0), uint(delivery_count), uint(credit), uint(0), boolean(is_drain)]
    return _frame(FLOW, fields)


def settled_frame(first: int, last: int) -> bytes:
    """Return the disposition with which the sender settles deliveries that the receiver has left unsettled."""
    return _frame(DISPOSITION, [FALSE, uint(first), uint(last), Value(0x41, payload=True)])


def close_frame() -> bytes:
    """Return a close without an error."""
    return _frame(CLOSE, [])


def whole_transfer(number: int, size: int) -> bytes:
    """Return what comes before a message of *size* bytes that needs no other frame; its delivery has the *number*."""
    return _FIRST.pack(_FIRST.size + size, _FIRST_FIELDS, number, _TAG, number, _AMQP_UNSETTLED, _LAST)


def transfer_frames(number: int, content: bytes, largest_frame: int) -> list[tuple[bytes, bytes]]:
    """
    Return the frames of one message, whose delivery has the *number*, each of at most *largest_frame* bytes.

    A frame is what comes before its part of the message, and that part, which is not copied.
    """
    room = largest_frame - TRANSFER_OVERHEAD
    if len(content) <= room:
        return [(whole_transfer(number, len(content)), content)]
    first = _FIRST.pack(_FIRST.size + room, _FIRST_FIELDS, number, _TAG, number, _AMQP_UNSETTLED, _MORE)
    found = [(first, content[:room])]
    for start in range(room, len(content), room):
        part = content[start : start + room]
        is_last = start + room >= len(content)
        found.append((_NEXT.pack(_NEXT.size + len(part), _NEXT_FIELDS, _LAST if is_last else _MORE), part))
    return found


def frame_size(header: bytes, *, is_sasl: bool) -> tuple[int, int]:
    """Return the sizes of the extended header and the body of a frame, by its first eight bytes."""
    size, offset, kind = int.from_bytes(header[:4]), header[4] * 4, header[5]
    if offset < HEADER_BYTES or size < offset or size > LARGEST_FRAME or kind != (_SASL if is_sasl else _AMQP):
        raise Malformed(f"frame: got {size} bytes of type {kind}, expected an AMQP 1.0 frame of up to {LARGEST_FRAME}")
    return offset - HEADER_BYTES, size - offset


def _frame(code: int, fields: Sequence[Value], kind: int = _AMQP) -> bytes:
    body = join_list(b"\x00\x53" + code.to_bytes(), [encode(each) for each in fields])
    return (HEADER_BYTES + len(body)).to_bytes(4) + b"\x02" + kind.to_bytes() + b"\x00\x00" + body


def _described(value: Value) -> Performative:
    payload = value.payload
    if not isinstance(payload, Described) or not isinstance(payload.descriptor.payload, int):
        raise Malformed(f"got a {value.kind}, expected a value with a numeric descriptor")
    return Performative(payload.descriptor.payload, items_of(payload.value))
