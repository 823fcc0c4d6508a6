"""
Dispositions: the states of deliveries, as they arrive and as they are sent.

Source: OASIS AMQP 1.0, part 2, section 2.7.6, part 3, section 3.4, and part 4, section 4.5.
"""

import re
import struct
from typing import NamedTuple

from shared.amqp.codec import encode
from shared.amqp.fields import NULL, Field, Fields, compose_list, flag_field, number_field
from shared.amqp.frames import AMQP, HEADER
from shared.amqp.performatives import ACCEPTED_STATE, DISPOSITION, FALSE, TRANSACTIONAL, TRUE
from shared.amqp.values import Value, binary


class Disposition(NamedTuple):
    """A disposition: the state of the deliveries from first to last; role is True from the end that received them."""

    role: bool
    first: int
    last: int
    settled: bool
    state: Value | None


def read_disposition(raw: list[Field]) -> Disposition:
    """Return a disposition."""
    fields = Fields("disposition", raw)
    first, last = fields.required_number(1), fields.number(2)
    return Disposition(fields.flag(0), first, first if last is None else last, fields.flag(3), fields.value(4))


_PREFIX = b"\x00\x53\x15\xc0"
_TRUE = (TRUE, b"\x56\x01")
# Nearly all that SDKs and brokers send: the first and the last delivery, settled, accepted, and `batchable`.
_ACCEPTANCE = re.compile(
    rb"\x00\x53\x15\xc0..(?:\x41|\x56\x01)(\x43|\x52.|\x70.{4})(\x40|\x43|\x52.|\x70.{4})"
    rb"(\x41|\x42|\x56[\x00\x01])\x00\x53\x24\x45(\x40|\x41|\x42|\x56[\x00\x01]|)",
    re.DOTALL,
)


def read_acceptance(body: bytes) -> tuple[int, int, bool] | None:
    """Return the first and last delivery that a receiver accepts, and whether it has settled them; else None."""
    # Without reading the fields one by one, this saves 5 µs a message.
    if not body.startswith(_PREFIX):
        return None
    found = _ACCEPTANCE.fullmatch(body)
    if found is None:
        return None
    first, last, settled, batchable = found.groups()
    if (body[4], body[5]) != (len(body) - 5, 6 if batchable else 5):
        return None
    number = int.from_bytes(first[1:])
    return number, number if last == NULL else int.from_bytes(last[1:]), settled in _TRUE


def settlement(delivery_id: int, state: bytes, *, settled: bool) -> bytes:
    """Return the disposition that gives an encoded state to one received delivery, without `last`, as .NET does."""
    fields = [TRUE, number_field(delivery_id), NULL, flag_field(settled), state]
    return compose_list(DISPOSITION, fields)


def acknowledgement(first: int, last: int) -> bytes:
    """Return the disposition in which a sender settles what the receiver has answered and left unsettled."""
    return compose_list(DISPOSITION, [FALSE, number_field(first), number_field(last), TRUE])


def disposition(*, role: bool, delivery_id: int, state: bytes) -> bytes:
    """Return the disposition that settles one delivery with an encoded state."""
    number = number_field(delivery_id)
    return compose_list(DISPOSITION, [flag_field(role), number, number, TRUE, state, FALSE])


# A frame as one struct: its header; descriptor, size, count and role; first, last; settled, the state and `batchable`.
_ACCEPTED_REST = TRUE + ACCEPTED_STATE + FALSE
_ACCEPTED = struct.Struct(f"{HEADER.format}7sBIBI{len(_ACCEPTED_REST)}s")
_SIZE = _ACCEPTED.size - HEADER.size - len(_PREFIX) - 1
_SENT, _RECEIVED = (b"%b%c\x06%b" % (_PREFIX, _SIZE, role) for role in (FALSE, TRUE))


def accepted_frame(channel: int, first: int, last: int, *, role: bool = False) -> bytes:
    """Return the frame that settles the deliveries from first to last as accepted."""
    # Without a list of fields this saves 2 µs a message.
    return _ACCEPTED.pack(
        _ACCEPTED.size, 2, AMQP, channel, _RECEIVED if role else _SENT, 0x70, first, 0x70, last, _ACCEPTED_REST
    )


def transactional_disposition(*, role: bool, delivery_id: int, transaction_id: bytes, outcome: bytes) -> bytes:
    """Return the disposition of a delivery within a transaction, with an encoded outcome."""
    # A delivery that the broker has sent is not settled before the commit: .NET settles it again after a rollback.
    number = number_field(delivery_id)
    state = compose_list(TRANSACTIONAL, [encode(binary(transaction_id)), outcome])
    return compose_list(DISPOSITION, [flag_field(role), number, number, flag_field(role), state, FALSE])
