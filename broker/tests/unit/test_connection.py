"""The protocol without sockets: answers to violations, windows, credit, and arbitrary bytes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.tests.client_frames import CLOSED, DETACHED, ENDED, codes, error_of
from broker.tests.unit.peer import Peer, opened
from busway_broker.core.session_store import SessionStore
from shared.amqp import dispositions, performatives, sasl
from shared.amqp.fields import compose_list, symbol_field, text_field
from shared.amqp.frames import AMQP_HEADER, SASL, SASL_HEADER, compose
from shared.amqp.sections import data
from shared.amqp.values import NULL, map_, string, symbol


def test_a_session_opens_and_closes() -> None:
    peer = Peer()
    heard = peer.open()
    assert heard[0] == AMQP_HEADER.encode()
    assert codes(heard) == [performatives.OPEN, performatives.BEGIN]
    assert [len(each[2]) for each in heard[1:]] == [10, 8]
    assert codes(peer.say(compose(0, performatives.end()), compose(0, performatives.close()))) == [ENDED, CLOSED]
    assert peer.connection.is_closed


def test_sasl_comes_before_amqp() -> None:
    peer = Peer()
    (header, (_, code, _, _)) = peer.say(SASL_HEADER.encode())
    assert (header, code) == (SASL_HEADER.encode(), sasl.MECHANISMS)
    init = compose_list(sasl.INIT, [symbol_field("ANONYMOUS")])
    ((_, outcome, fields, _),) = peer.say(compose(0, init, kind=SASL))
    assert (outcome, fields[0]) == (0x44, 0)
    assert codes(peer.open()) == [performatives.OPEN, performatives.BEGIN]


def test_an_unknown_mechanism_is_refused() -> None:
    peer = Peer()
    peer.say(SASL_HEADER.encode())
    init = compose_list(sasl.INIT, [symbol_field("KERBEROS")])
    ((_, _, fields, _),) = peer.say(compose(0, init, kind=SASL))
    assert fields[0] == 1
    assert peer.connection.is_closed


def test_frames_may_arrive_in_any_pieces() -> None:
    peer = Peer()
    opening = performatives.open_(performatives.Open("me", 65536, 10, 0))
    stream = AMQP_HEADER.encode() + compose(0, opening) + peer.begin() + peer.attach(3, receives=False, address="q")
    heard = [each for byte in stream for each in peer.say(bytes([byte]))]
    assert codes(heard) == [performatives.OPEN, performatives.BEGIN, performatives.ATTACH, performatives.FLOW]


def test_frames_for_a_channel_that_has_ended_are_ignored() -> None:
    peer = opened()
    peer.say(compose(0, performatives.end()))
    assert peer.say(compose(0, performatives.detach(0, closed=True)), compose(0, performatives.end())) == []


@pytest.mark.parametrize(
    ("attach", "condition"),
    [
        ({"receives": True, "address": "missing"}, "amqp:not-found"),
        ({"receives": False, "address": "missing"}, "amqp:not-found"),
        ({"receives": True, "address": "s"}, "amqp:not-allowed"),
        ({"receives": True, "address": "h/consumergroups/none/partitions/0"}, "amqp:not-found"),
        (
            {"receives": True, "address": "h/consumergroups/$default/partitions/9"},
            "com.microsoft:argument-out-of-range",
        ),
    ],
)
def test_a_refused_link_is_attached_without_a_terminus_and_detached(attach: dict[str, Any], condition: str) -> None:
    peer = opened()
    heard = peer.say(peer.attach(0, **attach))
    assert codes(heard) == [performatives.ATTACH, DETACHED]
    assert heard[0][2][5 if attach["receives"] else 6] is None
    assert error_of(heard, DETACHED) == condition
    assert peer.say(peer.flow(0, 5), compose(0, performatives.detach(0, closed=True))) == []
    assert codes(peer.say(peer.attach(0, receives=False, address="q")))[0] == performatives.ATTACH


def test_deliveries_stop_when_the_credit_is_used_up() -> None:
    peer = opened()
    peer.send(*[b"x"] * 5)
    assert (
        codes(peer.say(peer.attach(0, receives=True, address="q"), peer.flow(0, 2))).count(performatives.TRANSFER) == 2
    )
    assert codes(peer.say(peer.flow(0, 2, delivery_count=0, received=2))) == []
    assert codes(peer.say(peer.flow(0, 2, delivery_count=2, received=2))) == [performatives.TRANSFER] * 2


def test_deliveries_stop_when_the_session_window_is_full() -> None:
    peer = opened(window=2)
    peer.send(*[b"x"] * 5)
    heard = peer.say(peer.attach(0, receives=True, address="q"), peer.flow(0, 100))
    assert codes(heard).count(performatives.TRANSFER) == 2
    assert codes(peer.say(peer.flow(0, 98, delivery_count=2, received=2))).count(performatives.TRANSFER) == 2


def test_the_largest_window_and_credit_are_taken_as_they_are() -> None:
    peer = opened(window=2**32 - 1)
    peer.send(b"x", b"y")
    heard = peer.say(peer.attach(0, receives=True, address="q"), peer.flow(0, 2**32 - 1))
    assert codes(heard).count(performatives.TRANSFER) == 2
    ((_, _, fields, _),) = peer.say(peer.flow(0, 2**32 - 1, delivery_count=9, received=2, echo=True))
    assert fields[5:7] == [2, 2**32 - 1]


def test_a_large_message_waits_for_the_window_frame_by_frame() -> None:
    peer = opened(window=2, max_frame_size=512)
    body = bytes(range(256)) * 5
    peer.send(body)
    heard = peer.say(peer.attach(0, receives=True, address="q"), peer.flow(0, 1))
    frames = [each for each in heard if each[1] == performatives.TRANSFER]
    assert len(frames) == 2
    while frames[-1][2][5]:
        frames += peer.say(peer.flow(0, 0, delivery_count=1, received=len(frames)))
    assert data(body) in b"".join(payload for *_, payload in frames)


@pytest.mark.parametrize("ends", [False, True])
def test_what_a_link_says_follows_its_message_that_waits_for_the_window_unless_it_ends(ends: bool) -> None:
    peer = opened(window=2, max_frame_size=512)
    peer.send(bytes(1000))
    heard = peer.say(peer.attach(0, receives=True, address="q"), peer.flow(0, 5, drain=True))
    assert codes(heard) == [performatives.ATTACH, *[performatives.TRANSFER] * 2]
    if ends:
        assert codes(peer.say(compose(0, performatives.detach(0, closed=True)))) == [DETACHED]
    window = performatives.Flow(3, 9, 0, 5000, None, None, None, drain=False, echo=False)
    heard = peer.say(compose(0, performatives.flow(window)))
    assert codes(heard) == ([] if ends else [performatives.TRANSFER, performatives.FLOW])
    assert ends or heard[1][2][5:7] == [5, 0]


def test_draining_uses_up_the_credit() -> None:
    peer = opened()
    peer.send(b"x")
    peer.say(peer.attach(0, receives=True, address="q"))
    heard = peer.say(peer.flow(0, 10, drain=True))
    assert codes(heard) == [performatives.TRANSFER, performatives.FLOW]
    fields = heard[1][2]
    assert (fields[4], fields[5], fields[6], fields[8]) == (0, 10, 0, True)


def test_a_peer_that_does_not_read_gets_nothing_more_until_it_does() -> None:
    peer = opened()
    peer.send(*[b"x"] * 3)
    peer.say(peer.attach(0, receives=True, address="q"))
    peer.connection.is_writable = False
    assert peer.say(peer.flow(0, 10)) == []
    peer.connection.resume()
    assert codes(peer.heard()) == [performatives.TRANSFER] * 3


def test_transfers_beyond_the_window_end_the_session() -> None:
    peer = opened((9, False, "q"), incoming_window=0)
    assert error_of(peer.say(peer.transfer(9, 0, data(b"x"))), ENDED) == "amqp:session:window-violation"


def test_a_silent_peer_is_hung_up_on_and_others_get_heartbeats() -> None:
    peer = opened()
    assert peer.connection.tick_interval == pytest.approx(25)
    peer.connection.tick()
    assert peer.connection.take_output() == b"\x00\x00\x00\x08\x02\x00\x00\x00"
    for _ in range(12):
        peer.connection.tick()
    assert peer.connection.is_closed


def test_a_peer_that_wants_heartbeats_sooner_gets_them_sooner() -> None:
    peer = opened(idle_time_out=5_000)
    assert peer.connection.tick_interval == pytest.approx(2.5)


def test_heartbeats_are_not_sent_faster_than_makes_sense() -> None:
    peer = Peer(idle_time_out=10)
    assert error_of(peer.open(), CLOSED) == "amqp:not-allowed"


def test_a_peer_that_does_not_open_is_hung_up_on_however_much_it_says() -> None:
    peer = Peer()
    for byte in SASL_HEADER.encode():
        peer.say(bytes([byte]))
        peer.connection.tick()
    assert peer.connection.is_closed


def test_credit_is_granted_again_before_it_runs_out() -> None:
    peer = opened()
    heard = peer.send(*[b"x"] * 1500)
    assert codes(heard).count(performatives.DISPOSITION) == 1500
    assert [fields[5:7] for _, code, fields, _ in heard if code == performatives.FLOW] == [
        [500, 1000],
        [1000, 1000],
        [1500, 1000],
    ]


def test_a_peer_that_takes_no_answers_runs_out_of_credit() -> None:
    peer = opened()
    peer.send(b"x")
    peer.connection.is_writable = False
    heard = peer.say(*(peer.transfer(9, number, data(b"x")) for number in range(1, 1001)))
    assert error_of(heard, DETACHED) == "amqp:link:transfer-limit-exceeded"
    assert codes(heard).count(performatives.DISPOSITION) == 999


def test_a_peer_that_takes_its_answers_again_gets_credit_again() -> None:
    peer = opened((9, False, "q"))
    peer.connection.is_writable = False
    heard = peer.say(*(peer.transfer(9, number, data(b"x")) for number in range(600)))
    assert performatives.FLOW not in codes(heard)
    peer.connection.resume()
    ((_, code, fields, _),) = peer.heard()
    assert (code, fields[5:7]) == (performatives.FLOW, [600, 1000])


def test_what_a_connection_held_is_given_back_when_it_is_lost() -> None:
    peer = opened()
    peer.say(
        peer.attach(
            0, receives=True, address="s", filters=map_([(symbol("com.microsoft:session-filter"), string("a"))])
        )
    )
    store = peer.namespace.store("s")
    assert isinstance(store, SessionStore)
    assert list(store._held) == ["a"]
    peer.connection.release()
    assert not store._held


def _conversation() -> list[bytes]:
    peer = Peer()
    session_filter = map_([(symbol("com.microsoft:session-filter"), NULL)])
    opening = performatives.open_(performatives.Open("me", 65536, 10, 60_000))
    return [
        AMQP_HEADER.encode(),
        compose(0, opening),
        peer.begin(),
        peer.attach(0, receives=False, address="q"),
        peer.transfer(0, 0, data(b"x"), more=True),
        peer.transfer(0, 0, data(b"y")),
        peer.attach(1, receives=True, address="q"),
        peer.flow(1, 5),
        compose(0, dispositions.disposition(role=True, delivery_id=0, state=performatives.ACCEPTED_STATE)),
        peer.attach(2, receives=True, address="s", filters=session_filter),
        peer.attach(3, receives=True, address="h/consumergroups/$default/partitions/0"),
        peer.attach(4, receives=False, address="q/$management"),
        peer.attach(5, receives=True, address="q/$management"),
        peer.transfer(4, 1, compose_list(0x73, [text_field("id")]) + b"\x00\x53\x77\xc1\x01\x00"),
        compose(0, performatives.detach(1, closed=True)),
    ]


@given(st.data())
def test_any_bytes_get_an_answer_and_never_a_crash(source: st.DataObject) -> None:
    parts = list(_conversation())
    for _ in range(source.draw(st.integers(1, 3))):
        index = source.draw(st.integers(0, len(parts) - 1))
        part = bytearray(parts[index])
        match source.draw(st.sampled_from(["flip", "cut", "drop", "repeat", "junk"])):
            case "flip" if part:
                part[source.draw(st.integers(0, len(part) - 1))] = source.draw(st.integers(0, 255))
            case "cut":
                del part[source.draw(st.integers(0, len(part))) :]
            case "drop":
                part.clear()
            case "repeat":
                part *= 2
            case _:
                part += source.draw(st.binary(max_size=30))
        parts[index] = bytes(part)
    peer = Peer()
    for each in parts:
        peer.say(each)
    peer.connection.release()
    assert not peer.namespace.store("q")._ready.consumers
