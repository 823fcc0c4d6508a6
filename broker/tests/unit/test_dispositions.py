"""The two readers of acceptances: the quick one for what the SDKs send, and the one for all dispositions."""

import struct

from hypothesis import example, given
from hypothesis import strategies as st

from broker.tests.unit.peer import Peer, opened
from busway_broker.faults import Effect, Fault, Operation
from shared.amqp.codec import encode
from shared.amqp.dispositions import Disposition, accepted_frame, read_acceptance, read_disposition
from shared.amqp.errors import ConnectionViolation
from shared.amqp.fields import ACCEPTED as ACCEPTED_VALUE
from shared.amqp.fields import NULL, compose_list, fields_of, number_field, read_list
from shared.amqp.frames import HEADER, compose
from shared.amqp.performatives import DISPOSITION, FALSE, TRUE
from shared.amqp.values import uint

PREFIX = b"\x00\x53\x15\xc0"
ACCEPTED = b"\x00\x53\x24\x45"
AZURE_SERVICEBUS = bytes.fromhex("00 53 15 c0 10 06 56 01 70 00 00 01 f4 40 56 00 00 53 24 45 40")
UINTS = st.integers(0, 2**32 - 1)


def body(content: bytes, count: int) -> bytes:
    """Return the body of a frame with a disposition."""
    return PREFIX + bytes((1 + len(content), count)) + content


@st.composite
def usual(draw: st.DrawFn) -> bytes:
    """Return the acceptance of deliveries as one SDK or broker encodes it: of one, or of a range."""
    if draw(st.booleans()):
        first, last = (encode(uint(draw(UINTS | st.integers(0, 3)))) for _ in range(2))
        last, settled, batchable = (draw(st.sampled_from(each)) for each in ([last, NULL], [TRUE, FALSE], [b"", TRUE]))
        return body(TRUE + first + last + settled + ACCEPTED + batchable, 6 if batchable else 5)
    true, false = draw(st.sampled_from([(b"\x41", b"\x42"), (b"\x56\x01", b"\x56\x00")]))
    settled, batchable = draw(st.sampled_from([true, false])), draw(st.sampled_from([b"", b"\x40", true, false]))
    number = b"\x70" + struct.pack(">I", draw(UINTS))
    return body(true + number + b"\x40" + settled + ACCEPTED + batchable, 6 if batchable else 5)


def slowly(frame: bytes) -> Disposition | None:
    """Return the disposition as the reader of all performatives finds it, None if it refuses the frame."""
    try:
        _, fields, stop = read_list(frame)
        return read_disposition(fields) if stop == len(frame) else None
    except ConnectionViolation:
        return None


@given(usual())
@example(AZURE_SERVICEBUS)
def test_what_the_sdks_send_is_read_quickly(frame: bytes) -> None:
    found = read_acceptance(frame)
    assert found is not None
    assert slowly(frame) == Disposition(True, *found, ACCEPTED_VALUE)


@given(usual(), st.integers(0, 40), st.binary(max_size=3))
@example(body(b"\x41\x52\x01\x40\x42" + ACCEPTED, 6), 40, b"")  # one field fewer than announced
@example(body(b"\x41\x52\x01\x40\x42" + ACCEPTED + b"\x40", 5), 40, b"")  # one more
@example(body(b"\x41\x43\x43\x42" + ACCEPTED, 5), 3, b"\xc0\xff")  # another size
@example(AZURE_SERVICEBUS, 7, b"\x00")  # of the sender's role
def test_what_is_read_quickly_is_what_the_bytes_say(frame: bytes, position: int, put: bytes) -> None:
    damaged = frame[:position] + put + frame[position + len(put) :]
    found = read_acceptance(damaged)
    assert found is None or slowly(damaged) == Disposition(True, *found, ACCEPTED_VALUE)


@given(st.integers(0, 0xFFFF), UINTS, UINTS, st.booleans())
def test_accepted_deliveries_are_one_settled_disposition(channel: int, first: int, last: int, role: bool) -> None:
    frame = accepted_frame(channel, first, last, role=role)
    assert HEADER.unpack_from(frame) == (len(frame), 2, 0, channel)
    assert slowly(frame[HEADER.size :]) == Disposition(role, first, last, True, ACCEPTED_VALUE)


def receiving(*texts: bytes) -> Peer:
    """Return a client that has received messages from a queue, and has settled none."""
    peer = opened()
    peer.send(*texts)
    peer.say(peer.attach(0, receives=True, address="q"), peer.flow(0, len(texts)))
    return peer


def settle(peer: Peer, first: int, last: int, state: bytes) -> list[tuple[int, int, int]]:
    """Settle a range of deliveries; return the first, the last and the code of the state of each answer."""
    fields = [b"\x41", number_field(first), number_field(last), b"\x42", state]
    heard = peer.say(compose(0, compose_list(DISPOSITION, fields)))
    return [
        (fields[1], fields[2], fields_of(fields[4], "state")[0]) for _, code, fields, _ in heard if code == DISPOSITION
    ]


def test_a_range_of_accepted_deliveries_has_one_answer() -> None:
    peer = receiving(b"a", b"b", b"c")
    assert settle(peer, 0, 2, ACCEPTED) == [(0, 2, 0x24)]
    assert settle(peer, 0, 2, ACCEPTED) == []
    assert not peer.namespace.queues["q"].backlog.store.messages


def test_a_lost_lock_in_an_accepted_range_has_its_own_answer() -> None:
    peer = receiving(b"a", b"b", b"c", b"d")
    store = peer.namespace.queues["q"].backlog.store
    store.complete(
        next(message.lock_token or b"" for message in store.messages.values() if message.sequence_number == 2)
    )
    assert sorted(settle(peer, 0, 3, ACCEPTED)) == [(0, 0, 0x24), (1, 1, 0x25), (2, 3, 0x24)]


def test_what_is_settled_already_splits_an_accepted_range() -> None:
    peer = receiving(b"a", b"b", b"c")
    assert settle(peer, 1, 1, ACCEPTED) == [(1, 1, 0x24)]
    assert settle(peer, 0, 2, ACCEPTED) == [(0, 0, 0x24), (2, 2, 0x24)]


def test_a_fault_strikes_each_delivery_of_an_accepted_range() -> None:
    peer = receiving(b"a", b"b")
    peer.namespace.faults.add(Fault(effect=Effect.THROTTLE, operations=frozenset({Operation.SETTLE}), times=1))
    assert settle(peer, 0, 1, ACCEPTED) == [(0, 0, 0x25), (1, 1, 0x24)]
