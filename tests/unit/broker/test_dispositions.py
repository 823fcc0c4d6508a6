"""The two readers of dispositions: the quick one for what the SDKs send, and the one for all."""

import struct

from hypothesis import example, given
from hypothesis import strategies as st

from local.broker.errors import ConnectionViolation
from local.broker.protocol.fields import read_list
from local.broker.protocol.performatives import Disposition, read_disposition, usual_disposition

PREFIX = b"\x00\x53\x15\xc0"
ACCEPTED = b"\x00\x53\x24\x45"


def body(content: bytes, count: int) -> bytes:
    """Return the body of a frame with a disposition."""
    return PREFIX + bytes((1 + len(content), count)) + content


def long_number(number: int) -> bytes:
    """Return a uint of four bytes."""
    return b"\x70" + struct.pack(">I", number)


NUMBERS = st.one_of(
    st.just(b"\x43"),
    st.integers(0, 255).map(lambda number: bytes((0x52, number))),
    st.integers(0, 2**32 - 1).map(long_number),
)
FLAGS = st.sampled_from([b"\x41", b"\x42", b"\x56\x00", b"\x56\x01"])
TRUE = st.sampled_from([b"\x41", b"\x56\x01"])
LAST = st.one_of(NUMBERS, st.just(b"\x40"))
BATCHABLE = st.sampled_from([b"", b"\x40", b"\x41", b"\x42"])


@st.composite
def usual(draw: st.DrawFn) -> bytes:
    """Return a disposition as one SDK or another encodes it."""
    batchable = draw(BATCHABLE)
    fields = [draw(TRUE), draw(NUMBERS), draw(LAST), draw(FLAGS), ACCEPTED, batchable]
    return body(b"".join(fields), 6 if batchable else 5)


def slowly(frame: bytes) -> Disposition | None:
    """Return the disposition as the reader of all performatives finds it, None if it refuses the frame."""
    try:
        _, fields, stop = read_list(frame)
        return read_disposition(fields) if stop == len(frame) else None
    except ConnectionViolation:
        return None


@given(usual())
@example(body(b"\x41\x52\x01\x40\x42" + ACCEPTED + b"\x40", 6))  # azure-servicebus
def test_what_the_sdks_send_is_read_quickly(frame: bytes) -> None:
    found = usual_disposition(frame)
    assert found is not None
    assert found == slowly(frame)


@given(usual(), st.integers(0, 40), st.binary(max_size=3))
@example(body(b"\x41\x52\x01\x40\x42" + ACCEPTED, 6), 40, b"")  # one field fewer than announced
@example(body(b"\x41\x52\x01\x40\x42" + ACCEPTED + b"\x40", 5), 40, b"")  # one more
@example(body(b"\x41\x43\x43\x42" + ACCEPTED, 5), 3, b"\xc0\xff")  # another size
def test_what_is_read_quickly_is_what_the_bytes_say(frame: bytes, position: int, put: bytes) -> None:
    damaged = frame[:position] + put + frame[position + len(put) :]
    found = usual_disposition(damaged)
    assert found is None or found == slowly(damaged)
