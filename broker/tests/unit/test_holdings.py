"""What a connection makes the broker hold: limits before and after a token, and in time."""

import tracemalloc
from typing import Any

import pytest

from broker.tests.client_frames import CLOSED, error_of
from broker.tests.unit.peer import Peer, opened
from busway_broker.config import Right, SharedAccessKey
from busway_broker.protocol import holdings
from busway_broker.protocol.connection import HANDSHAKE_SECONDS, TOKEN_SECONDS
from busway_broker.protocol.holdings import Holdings, TotalHoldings
from shared.amqp import performatives
from shared.amqp.frames import compose

KEYS = (SharedAccessKey(name="owner", key="k", rights=frozenset(Right)),)


class Holder:
    """A connection without a protocol."""

    def __init__(self, total: TotalHoldings, *, is_trusted: bool = False) -> None:
        self.reasons: list[str] = []
        self.holdings = Holdings(total, lambda: is_trusted, self.reasons.append)


@pytest.mark.parametrize("is_trusted", [True, False])
def test_connection_is_closed_beyond_its_limit(is_trusted: bool) -> None:
    limit = holdings.TRUSTED_LIMIT if is_trusted else holdings.UNTRUSTED_LIMIT
    total = TotalHoldings()
    holder = Holder(total, is_trusted=is_trusted)
    holder.holdings.change(limit)
    assert holder.reasons == []
    holder.holdings.change(1)
    assert f"holds {limit + 1} bytes of requests and links, expected at most {limit}" in holder.reasons[0]
    assert (total.size, holder.holdings.size) == (0, 0)
    holder.holdings.change(5)
    holder.holdings.change(-5)
    assert total.size == 0


def test_largest_holder_without_a_token_is_closed_if_all_hold_too_much() -> None:
    total = TotalHoldings(limit=1000)
    trusted, large, small = Holder(total, is_trusted=True), Holder(total), Holder(total)
    trusted.holdings.change(500)
    small.holdings.change(10)
    large.holdings.change(400)
    small.holdings.change(91)
    assert "all connections together hold 1001 bytes, expected at most 1000" in large.reasons[0]
    assert trusted.reasons == small.reasons == []
    assert total.size == 601
    trusted.holdings.change(460)
    assert (len(small.reasons), trusted.reasons, total.size) == (1, [], 960)


def sent(peer: Peer, number: int) -> list[Any]:
    return peer.say(
        peer.attach(number, receives=False, address="$cbs"), peer.transfer(number, 0, bytes(50_000), more=True)
    )


def test_incomplete_requests_close_a_connection_without_a_token() -> None:
    peer = opened(keys=KEYS)
    heard: list[Any] = []
    count = 0
    while not heard or not peer.connection.is_closed:
        heard = sent(peer, count)
        count += 1
    assert count == 6
    assert error_of(heard, CLOSED) == "amqp:resource-limit-exceeded"
    assert peer.connection.holdings.size == 0


def test_what_ends_is_no_longer_counted() -> None:
    peer = opened(keys=KEYS)
    first = peer.connection.holdings.size
    for _ in range(20):
        sent(peer, 0)
        assert peer.connection.holdings.size > first + 50_000
        peer.say(peer.transfer(0, 0, b""))
        peer.say(compose(0, performatives.detach(0, closed=True)))
        assert peer.connection.holdings.size == first
        sent(peer, 1)
        peer.say(compose(0, performatives.end()), peer.begin())
        assert peer.connection.holdings.size == first


@pytest.mark.parametrize("payload", [b"", b"x"])
def test_small_frames_are_kept_without_overhead(payload: bytes) -> None:
    peer = opened((0, False, "q"))
    frames = peer.transfer(0, 0, payload, more=True) * 250
    peer.connection.receive(frames)
    tracemalloc.start()
    try:
        for _ in range(20):
            peer.connection.receive(frames)
            peer.connection.take_output()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert grown < 25_000


def test_large_frames_without_a_token_are_refused_before_they_are_decoded() -> None:
    # Cannot be decoded: another error would say so.
    large = compose(0, b"\x00\x53\x12\xd0" + b"\xff" * 9000)
    peer = opened(keys=KEYS)
    assert error_of(peer.say(large), CLOSED) == "amqp:resource-limit-exceeded"
    trusted = Peer()
    trusted.open()
    assert error_of(trusted.say(large), CLOSED) == "amqp:decode-error"


def seconds_until_closed(peer: Peer) -> float:
    seconds = 0.0
    while not peer.connection.is_closed:
        # A heartbeat, so that it is not idle.
        peer.connection.receive(b"\x00\x00\x00\x08\x02\x00\x00\x00")
        seconds += peer.connection.tick_interval
        peer.connection.tick()
        assert seconds < 10_000
    return seconds


def test_connection_without_a_token_is_closed_in_time() -> None:
    peer = opened(keys=KEYS)
    assert TOKEN_SECONDS <= seconds_until_closed(peer) < TOKEN_SECONDS + HANDSHAKE_SECONDS
    assert error_of(peer.heard(), CLOSED) == "amqp:unauthorized-access"


def test_connection_that_needs_no_token_or_has_shown_one_stays_open() -> None:
    trusted = Peer(keys=KEYS)
    trusted.open()
    trusted.connection.claims.put_key("owner", "k")
    for peer in (Peer(), trusted):
        if peer is not trusted:
            peer.open()
        for _ in range(100):
            peer.connection.receive(b"\x00\x00\x00\x08\x02\x00\x00\x00")
            peer.connection.tick()
        assert not peer.connection.is_closed
