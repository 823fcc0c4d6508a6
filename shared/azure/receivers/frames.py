# ruff: noqa: PLR2004 - format codes and widths of the AMQP specification; a name for each would hide the table
"""
The two AMQP frames of every received message, read and written without a general codec.

Source: OASIS AMQP 1.0, part 2, sections 2.3 (frames), 2.7.5 (transfer) and 2.7.6 (disposition).
"""

from collections.abc import Iterable
from typing import NamedTuple

from shared.amqp.codec import decode, items_of
from shared.amqp.scan import skip
from shared.amqp.values import Described, Malformed

TRANSFER = 0x14
DISPOSITION = 0x15
END = 0x17

ACCEPTED = 0x24
REJECTED = 0x25
RELEASED = 0x26
MODIFIED = 0x27

_STATES = {
    ACCEPTED: b"\x00\x53\x24\x45",
    RELEASED: b"\x00\x53\x26\x45",
    MODIFIED: b"\x00\x53\x27\x45",  # abandon: .NET sets no field
}

_NULL = 0x40
_TRUE = 0x41
_SENDER = 0x42
_BOOLEAN = 0x56


class Transfer(NamedTuple):
    """A transfer frame; delivery_id and tag are None on the second and later frames of a message."""

    handle: int
    delivery_id: int | None
    tag: bytes | None
    more: bool
    aborted: bool
    payload: bytes


class Disposition(NamedTuple):
    """A disposition frame of a sender: the settled deliveries, their outcome and error condition."""

    first: int
    last: int
    settled: bool
    outcome: int | None
    condition: str | None


def read_transfer(buffer: bytes, position: int, end: int) -> Transfer:
    """Return the transfer whose performative starts at *position* of a frame that ends at *end*."""
    count, position, stop = _list(buffer, position + 3, end)
    handle, position = _uint(buffer, position)
    delivery_id: int | None = None
    tag: bytes | None = None
    if count > 1:
        if buffer[position] == _NULL:
            position += 1
        else:
            delivery_id, position = _uint(buffer, position)
    if count > 2:
        if buffer[position] == _NULL:
            position += 1
        else:
            tag_stop = position + 2 + buffer[position + 1]
            tag = buffer[position + 2 : tag_stop]
            position = tag_stop
    more = aborted = False
    index = 3
    while index < count and position < stop:
        value_stop = position + 1 if buffer[position] < 0x50 else skip(buffer, position, stop)
        if index == 5:
            more = _is_true(buffer, position)
        elif index == 9:
            aborted = _is_true(buffer, position)
        position = value_stop
        index += 1
    return Transfer(handle, delivery_id, tag, more, aborted, buffer[stop:end])


def read_disposition(buffer: bytes, position: int, end: int) -> Disposition | None:
    """Return the disposition whose performative starts at *position*; None for one from a receiver."""
    _, position, stop = _list(buffer, position + 3, end)
    if buffer[position] != _SENDER:
        return None
    first, position = _uint(buffer, position + 1)
    last, settled, outcome, condition = first, False, None, None
    if position < stop:
        if buffer[position] == _NULL:
            position += 1
        else:
            last, position = _uint(buffer, position)
    if position < stop:
        settled = _is_true(buffer, position)
        position = skip(buffer, position, stop)
    if position < stop and buffer[position] == 0 and buffer[position + 1] == 0x53:
        outcome = buffer[position + 2]
        if outcome == REJECTED:
            condition = _condition(buffer[position:stop])
    return Disposition(first, last, settled, outcome, condition)


def write_dispositions(
    channel: int, delivery_ids: Iterable[int], outcome: int, *, settled: bool, state: bytes | None = None
) -> bytes:
    """
    Return one disposition frame of a receiver for each delivery id, without `last`, as .NET sends them.

    *state* is the encoded outcome if it has fields.
    """
    tail = b"\x40" + (b"\x41" if settled else b"\x42") + (state or _STATES[outcome])
    head = b"\x02\x00" + channel.to_bytes(2) + b"\x00\x53\x15"
    frames = []
    for delivery_id in delivery_ids:
        content = b"\x41\x70%b%b" % (delivery_id.to_bytes(4), tail)
        size = len(content) + 1
        if size <= 0xFF:
            body = b"%b\xc0%c\x05%b" % (head, size, content)
        else:
            body = b"%b\xd0%b\x00\x00\x00\x05%b" % (head, (size + 3).to_bytes(4), content)
        frames.append((len(body) + 4).to_bytes(4) + body)
    return b"".join(frames)


def _list(buffer: bytes, position: int, end: int) -> tuple[int, int, int]:
    """Return the count of the performative's list, where its content starts and where it stops."""
    code = buffer[position]
    if code == 0xC0:
        return buffer[position + 2], position + 3, position + 2 + buffer[position + 1]
    if code == 0xD0:
        stop = position + 5 + int.from_bytes(buffer[position + 1 : position + 5])
        return int.from_bytes(buffer[position + 5 : position + 9]), position + 9, stop
    raise Malformed(f"performative at byte {position} of {end}: format code 0x{code:02x}, expected a list with fields")


def _uint(buffer: bytes, position: int) -> tuple[int, int]:
    code = buffer[position]
    if code == 0x52:
        return buffer[position + 1], position + 2
    if code == 0x70:
        return int.from_bytes(buffer[position + 1 : position + 5]), position + 5
    if code == 0x43:
        return 0, position + 1
    raise Malformed(f"performative field at byte {position}: format code 0x{code:02x}, expected a uint")


def _is_true(buffer: bytes, position: int) -> bool:
    return buffer[position] == _TRUE or (buffer[position] == _BOOLEAN and buffer[position + 1] == 1)


def _condition(state: bytes) -> str | None:
    value, _ = decode(state)
    if not isinstance(value.payload, Described):
        return None
    fields = items_of(value.payload.value)
    if not fields or not isinstance(fields[0].payload, Described):
        return None
    error = items_of(fields[0].payload.value)
    return str(error[0].payload) if error else None
