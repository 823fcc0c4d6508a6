"""
Dispositions: the states of deliveries, as they arrive and as they are sent.

Source: OASIS AMQP 1.0, part 2, section 2.7.6, part 3, section 3.4, and part 4, section 4.5.
"""

import itertools
import re
import struct
from collections.abc import Iterator
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
_TRUES, _FALSES = (TRUE, b"\x56\x01"), (FALSE, b"\x56\x00")


def _acceptances() -> Iterator[tuple[bytes, int, bool]]:
    """
    Yield the acceptances of one delivery as the SDKs encode them, without the four bytes of its number.

    The others are where these bytes belong, and whether the delivery is settled.
    """
    for true, false in zip(_TRUES, _FALSES, strict=True):
        for settled, batchable in itertools.product((true, false), (b"", NULL, true, false)):
            head = true + b"\x70"
            rest = NULL + settled + ACCEPTED_STATE + batchable
            size = 1 + len(head) + 4 + len(rest)
            head = b"%b%c%c%b" % (_PREFIX, size, 6 if batchable else 5, head)
            yield head + rest, len(head), settled == true


_ACCEPTANCES = {encoded: settled for encoded, _, settled in _acceptances()}
_NUMBER_AT = {len(encoded) + 4: at for encoded, at, _ in _acceptances()}
"""Where the number is in an acceptance of this length."""


# The forms in which brokers accept ranges: the first and the last delivery, settled, accepted, and `batchable`.
_RANGE = re.compile(
    rb"\x00\x53\x15\xc0..\x41(\x43|\x52.|\x70.{4})(\x40|\x43|\x52.|\x70.{4})([\x41\x42])\x00\x53\x24\x45([\x40\x41\x42]?)",
    re.DOTALL,
)


def read_acceptance(body: bytes) -> tuple[int, int, bool] | None:
    """Return the first and last delivery that a receiver accepts, and whether it has settled them; else None."""
    # Nearly all that azure-servicebus sends: without reading the fields one by one, this saves 5 µs a message.
    at = _NUMBER_AT.get(len(body))
    if at is not None:
        settled = _ACCEPTANCES.get(body[:at] + body[at + 4 :])
        if settled is not None:
            number = int.from_bytes(body[at : at + 4])
            return number, number, settled
    if not body.startswith(_PREFIX):
        return None
    found = _RANGE.fullmatch(body)
    if found is None or (body[4], body[5]) != (len(body) - 5, 5 + len(found[4])):
        return None
    first = int.from_bytes(found[1][1:])
    return first, first if found[2] == NULL else int.from_bytes(found[2][1:]), found[3] == TRUE


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
