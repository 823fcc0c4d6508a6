"""
The performatives: encoding, and decoding of the fields that Busway uses.

Source: OASIS AMQP 1.0, part 2, section 2.7, part 3, section 3.4, and part 4, section 4.5.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple

from shared.amqp.codec import encode, pairs_of
from shared.amqp.errors import AmqpError
from shared.amqp.fields import (
    ACCEPTED as ACCEPTED_VALUE,
)
from shared.amqp.fields import (
    NULL,
    Field,
    Fields,
    compose_list,
    fields_of,
    flag_field,
    long_number_field,
    number_field,
    symbol_field,
    symbols_field,
    text_field,
    value_field,
)
from shared.amqp.frames import AMQP, HEADER
from shared.amqp.peer_error import PeerError
from shared.amqp.values import Value, binary

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
RECEIVED, ACCEPTED, REJECTED, RELEASED, MODIFIED = range(0x23, 0x28)
ERROR = 0x1D
DECLARE, DISCHARGE, DECLARED, TRANSACTIONAL = range(0x31, 0x35)

ACCEPTED_STATE = b"\x00\x53\x24\x45"
REJECTED_STATE = b"\x00\x53\x25\x45"
RELEASED_STATE = b"\x00\x53\x26\x45"
# To abandon a message, .NET sets no field.
OUTCOME_STATES = {ACCEPTED: ACCEPTED_STATE, RELEASED: RELEASED_STATE, MODIFIED: b"\x00\x53\x27\x45"}

_EMPTY_MAP = b"\xc1\x01\x00"
TRUE, FALSE = b"\x41", b"\x42"


class Open(NamedTuple):
    """The fields of an open that Busway reads; the idle time-out is in milliseconds."""

    container_id: str
    max_frame_size: int
    channel_max: int
    idle_time_out: int | None


def read_open(raw: list[Field]) -> Open:
    """Return an open."""
    fields = Fields("open", raw)
    size, channels = fields.number(2), fields.number(3)
    return Open(
        fields.required_text(0),
        0xFFFFFFFF if size is None else size,
        0xFFFF if channels is None else channels,
        fields.number(4),
    )


def open_(
    container_id: str, *, max_frame_size: int, channel_max: int, idle_time_out: int, host_name: str | None = None
) -> bytes:
    """Return an open; a client names the host that it wants."""
    return compose_list(
        OPEN,
        [
            text_field(container_id),
            text_field(host_name),
            number_field(max_frame_size),
            b"\x60%b" % channel_max.to_bytes(2),
            number_field(idle_time_out),
            *[NULL] * 5,
        ],
    )


class Begin(NamedTuple):
    """The fields of a begin that Busway reads."""

    remote_channel: int | None
    next_outgoing_id: int
    incoming_window: int


def read_begin(raw: list[Field]) -> Begin:
    """Return a begin."""
    fields = Fields("begin", raw)
    return Begin(fields.number(0), fields.required_number(1), fields.required_number(2))


def begin(
    remote_channel: int | None, *, next_outgoing_id: int, incoming_window: int, outgoing_window: int, handle_max: int
) -> bytes:
    """Return a begin; an answer names the *remote_channel* of the peer's."""
    return compose_list(
        BEGIN,
        [
            NULL if remote_channel is None else b"\x60%b" % remote_channel.to_bytes(2),
            number_field(next_outgoing_id),
            number_field(incoming_window),
            number_field(outgoing_window),
            number_field(handle_max),
            *[NULL] * 3,
        ],
    )


class Attach(NamedTuple):
    """An attach; role is True for the end that receives."""

    name: str
    handle: int
    role: bool
    send_settle_mode: int
    receive_settle_mode: int
    source: Value | None
    target: Value | None
    initial_delivery_count: int | None
    max_message_size: int | None
    desired_capabilities: tuple[str, ...]
    properties: Value | None
    offered_capabilities: tuple[str, ...] = ()


_MIXED = 2
_SECOND = 1
_LARGEST_SIZE = 2**64 - 1


def read_attach(raw: list[Field]) -> Attach:
    """Return an attach."""
    fields = Fields("attach", raw)
    send_settle_mode = fields.number(3, _MIXED)
    return Attach(
        fields.required_text(0),
        fields.required_number(1),
        fields.flag(2),
        _MIXED if send_settle_mode is None else send_settle_mode,
        fields.number(4, _SECOND) or 0,
        fields.value(5),
        fields.value(6),
        fields.number(9),
        fields.number(10, _LARGEST_SIZE),
        fields.symbols(12),
        fields.value(13),
    )


def attach(link: Attach) -> bytes:
    """Return an attach."""
    return compose_list(
        ATTACH,
        [
            text_field(link.name),
            number_field(link.handle),
            flag_field(link.role),
            b"\x50%c" % link.send_settle_mode,
            b"\x50%c" % link.receive_settle_mode,
            value_field(link.source),
            value_field(link.target),
            NULL,
            FALSE,
            number_field(link.initial_delivery_count),
            long_number_field(link.max_message_size),
            symbols_field(link.offered_capabilities),
            symbols_field(link.desired_capabilities),
            value_field(link.properties),
        ],
    )


class Flow(NamedTuple):
    """The state of a session's windows and, with a handle, of a link's credit."""

    next_incoming_id: int | None
    incoming_window: int
    next_outgoing_id: int
    outgoing_window: int
    handle: int | None
    delivery_count: int | None
    link_credit: int | None
    drain: bool
    echo: bool
    has_transaction: bool = False


def read_flow(raw: list[Field]) -> Flow:
    """Return a flow."""
    fields = Fields("flow", raw)
    return Flow(
        fields.number(0),
        fields.required_number(1),
        fields.required_number(2),
        fields.required_number(3),
        fields.number(4),
        fields.number(5),
        fields.number(6),
        fields.flag(8),
        fields.flag(9),
        _names_transaction(fields.value(10)),
    )


def _names_transaction(properties: Value | None) -> bool:
    """Return whether the properties of a flow ask for messages within a transaction (part 4, section 4.4.3)."""
    return (
        properties is not None
        and properties.kind == "map"
        and any(key.payload == "txn-id" for key, _ in pairs_of(properties))
    )


def flow(state: Flow) -> bytes:
    """Return a flow."""
    return compose_list(
        FLOW,
        [
            number_field(state.next_incoming_id),
            number_field(state.incoming_window),
            number_field(state.next_outgoing_id),
            number_field(state.outgoing_window),
            number_field(state.handle),
            number_field(state.delivery_count),
            number_field(state.link_credit),
            NULL,
            flag_field(state.drain),
            flag_field(state.echo),
            NULL,
        ],
    )


class Transfer(NamedTuple):
    """One frame of a delivery."""

    handle: int
    delivery_id: int | None
    delivery_tag: bytes | None
    message_format: int | None
    settled: bool
    more: bool
    aborted: bool
    transaction_id: bytes | None = None


def read_transfer(raw: list[Field]) -> Transfer:
    """Return a transfer."""
    fields = Fields("transfer", raw)
    return Transfer(
        fields.required_number(0),
        fields.number(1),
        fields.binary(2),
        fields.number(3),
        fields.flag(4),
        fields.flag(5),
        fields.flag(9),
        transaction_of(fields.value(7)),
    )


def transaction_of(state: Value | None) -> bytes | None:
    """Return the id of the transaction that a delivery state names (part 4, section 4.5.8), None if it names none."""
    if state is None or state is ACCEPTED_VALUE:
        return None
    code, fields = fields_of(state, "delivery state")
    return fields.binary(0) or b"" if code == TRANSACTIONAL else None


def transactional_outcome_of(state: Value | None) -> Value | None:
    """Return the outcome in a delivery state that names a transaction."""
    return fields_of(state, "delivery state")[1].value(1)


# Packing frame header and performative as one struct, instead of a list of fields, saves 2 µs a delivery: the header;
# descriptor, size, count and the code of the handle; the handle; the delivery id; the tag; message format, settled,
# more, and five fields without a value.
_TRANSFER_HEAD = b"\x00\x53\x14\xc0%c\x0b\x70"
_TRANSFER_TAILS = [
    [b"\x43%b%b%b" % (flag_field(settled), flag_field(more), NULL * 2 + FALSE * 3) for more in (False, True)]
    for settled in (False, True)
]


def _transfers(tag_size: int) -> tuple[Callable[..., bytes], int, bytes]:
    """Return what packs a transfer with a tag of this size, the size of what it packs, and its first bytes."""
    fields = struct.Struct(f"{HEADER.format}7sIBIBB{tag_size}s8s")
    return fields.pack, fields.size, _TRANSFER_HEAD % (fields.size - HEADER.size - 5)


_TRANSFERS = [_transfers(size) for size in range(33)]
TRANSFER_SIZE = _TRANSFERS[32][1]
"""The most bytes of a transfer with its frame header, without its payload."""


def transfer(
    channel: int, handle: int, delivery_id: int, tag: bytes, payload_size: int, *, settled: bool, more: bool
) -> bytes:
    """Return what comes before the payload in the frame of a transfer; a tag has up to 32 bytes."""
    tag_size = len(tag)
    pack, size, head = _TRANSFERS[tag_size]
    tail = _TRANSFER_TAILS[settled][more]
    return pack(size + payload_size, 2, AMQP, channel, head, handle, 0x70, delivery_id, 0xA0, tag_size, tag, tail)


def declared(transaction_id: bytes) -> bytes:
    """Return the outcome that gives a new transaction its id."""
    return compose_list(DECLARED, [encode(binary(transaction_id))])


def read_error(value: Value | None) -> PeerError | None:
    """Return the error in a detach, end, close or rejected state; None without one."""
    if value is None:
        return None
    _, fields = fields_of(value, "error")
    return PeerError(fields.text(0) or "", fields.text(1) or "")


def error(failure: AmqpError) -> bytes:
    """Return an error of three elements: azure-servicebus reads the third one without checking that it exists."""
    return compose_list(ERROR, [symbol_field(failure.condition), text_field(failure.description), _EMPTY_MAP])


def rejected(failure: AmqpError) -> bytes:
    """Return the state of a rejected delivery."""
    return compose_list(REJECTED, [error(failure)])


def detach(handle: int, *, closed: bool, failure: AmqpError | None = None) -> bytes:
    """Return a detach."""
    fields = [number_field(handle), flag_field(closed), NULL if failure is None else error(failure)]
    return compose_list(DETACH, fields)


def end(failure: AmqpError | None = None) -> bytes:
    """Return an end."""
    return compose_list(END, [NULL if failure is None else error(failure)])


def close(failure: AmqpError | None = None) -> bytes:
    """Return a close."""
    return compose_list(CLOSE, [NULL if failure is None else error(failure)])
