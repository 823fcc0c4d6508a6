"""
The performatives: encoding, and decoding of the fields that Busway uses.

Source: OASIS AMQP 1.0, part 2, section 2.7, part 3, section 3.4, and part 4, section 4.5.
"""

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

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
    """The fields of an open that Busway uses; the idle time-out is in milliseconds, and a client names its host."""

    container_id: str
    max_frame_size: int
    channel_max: int
    idle_time_out: int | None
    host_name: str | None = None


class Begin(NamedTuple):
    """The fields of a begin that Busway uses; an answer names the channel of the peer's begin."""

    remote_channel: int | None
    next_outgoing_id: int
    incoming_window: int
    outgoing_window: int | None
    handle_max: int | None


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
    """Of this end: those of the peer are not read."""


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


def _names_transaction(properties: Value | None) -> bool:
    """Return whether the properties of a flow ask for messages within a transaction (part 4, section 4.4.3)."""
    return (
        properties is not None
        and properties.kind == "map"
        and any(key.payload == "txn-id" for key, _ in pairs_of(properties))
    )


class _Kind(NamedTuple):
    """How a field is read, and how it is written."""

    read: Callable[[Fields, int], Any]
    write: Callable[[Any], bytes]


def _short_field(number: int | None) -> bytes:
    return NULL if number is None else b"\x60%b" % number.to_bytes(2)


def _number(write: Callable[[Any], bytes], *, most: int = 0xFFFF_FFFF, default: int | None = None) -> _Kind:
    return _Kind(lambda fields, at: default if (found := fields.number(at, most)) is None else found, write)


_UINT, _REQUIRED_UINT = _number(number_field), _Kind(Fields.required_number, number_field)
_TEXT, _REQUIRED_TEXT = _Kind(Fields.text, text_field), _Kind(Fields.required_text, text_field)
_FLAG, _VALUE = _Kind(Fields.flag, flag_field), _Kind(Fields.value, value_field)
_MIXED, _SECOND = 2, 1


class _Layout[Performative: tuple[Any, ...]]:
    """The fields of a performative in order: attribute and kind, or what is written of one that is not read."""

    def __init__(self, code: int, performative: type[Performative], *fields: tuple[str, _Kind] | bytes) -> None:
        self._code = code
        self._performative = performative
        self._fields = fields

    def read(self, raw: list[Field]) -> Performative:
        """Return the performative with these fields."""
        given = Fields(self._performative.__name__.lower(), raw)
        fields = enumerate(self._fields)
        return self._performative(
            **{each[0]: each[1].read(given, at) for at, each in fields if isinstance(each, tuple)}
        )

    def write(self, performative: Performative) -> bytes:
        """Return the encoded performative."""
        fields = self._fields
        return compose_list(
            self._code,
            [each if isinstance(each, bytes) else each[1].write(getattr(performative, each[0])) for each in fields],
        )


_OPEN = _Layout(
    OPEN,
    Open,
    ("container_id", _REQUIRED_TEXT),
    ("host_name", _TEXT),
    ("max_frame_size", _number(number_field, default=0xFFFF_FFFF)),
    ("channel_max", _number(_short_field, default=0xFFFF)),
    ("idle_time_out", _UINT),
    *[NULL] * 5,
)
read_open, open_ = _OPEN.read, _OPEN.write
_BEGIN = _Layout(
    BEGIN,
    Begin,
    ("remote_channel", _number(_short_field)),
    ("next_outgoing_id", _REQUIRED_UINT),
    ("incoming_window", _REQUIRED_UINT),
    ("outgoing_window", _UINT),
    ("handle_max", _UINT),
    *[NULL] * 3,
)
read_begin, begin = _BEGIN.read, _BEGIN.write
_ATTACH = _Layout(
    ATTACH,
    Attach,
    ("name", _REQUIRED_TEXT),
    ("handle", _REQUIRED_UINT),
    ("role", _FLAG),
    ("send_settle_mode", _number(lambda mode: b"\x50%c" % mode, most=_MIXED, default=_MIXED)),
    ("receive_settle_mode", _number(lambda mode: b"\x50%c" % mode, most=_SECOND, default=0)),
    ("source", _VALUE),
    ("target", _VALUE),
    NULL,
    FALSE,
    ("initial_delivery_count", _UINT),
    ("max_message_size", _number(long_number_field, most=2**64 - 1)),
    ("offered_capabilities", _Kind(lambda *_: (), symbols_field)),
    ("desired_capabilities", _Kind(Fields.symbols, symbols_field)),
    ("properties", _VALUE),
)
read_attach, attach = _ATTACH.read, _ATTACH.write
_FLOW = _Layout(
    FLOW,
    Flow,
    ("next_incoming_id", _UINT),
    ("incoming_window", _REQUIRED_UINT),
    ("next_outgoing_id", _REQUIRED_UINT),
    ("outgoing_window", _REQUIRED_UINT),
    ("handle", _UINT),
    ("delivery_count", _UINT),
    ("link_credit", _UINT),
    NULL,
    ("drain", _FLAG),
    ("echo", _FLAG),
    ("has_transaction", _Kind(lambda fields, at: _names_transaction(fields.value(at)), lambda _: NULL)),
)
read_flow, flow = _FLOW.read, _FLOW.write


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
