from datetime import UTC, datetime, timedelta

import pytest

from shared.amqp.codec import decode
from shared.amqp.values import timestamp, uint
from shared.message.arrival import Origin
from shared.message.mapping import TIME_TO_LIVE, keep_broker_properties
from shared.message.message import Message
from shared.message.ttl import Keep, Remaining, Stamp, shortened
from tests.messages import ENQUEUED, message

LONGEST_IN_HEADER = 2**32 - 1
NINETY_DAYS = 90 * 24 * 3_600_000


def living(life: int | None) -> Message:
    made = message(time_to_live=None)
    made.time_to_live = life
    return made


def at(milliseconds_later: int) -> datetime:
    return datetime.fromtimestamp(ENQUEUED / 1000, UTC) + timedelta(milliseconds=milliseconds_later)


@pytest.mark.parametrize("life", [None, 1, 5000])
def test_keep_does_not_change_the_time_to_live(life: int | None) -> None:
    kept = message(time_to_live=life)
    before = kept.encode()
    assert not Keep().expires(kept, at(10**9))
    assert kept.encode() == before


@pytest.mark.parametrize(
    ("life", "stamped"),
    [
        (timedelta(minutes=2), 120_000),
        (timedelta(microseconds=1), 1),
        (timedelta(milliseconds=1.4), 1),
        (timedelta(days=90), NINETY_DAYS),
    ],
)
def test_stamp_gives_every_copy_the_same_time_to_live(life: timedelta, stamped: int) -> None:
    copied = message(time_to_live=5000)
    assert not Stamp(life).expires(copied, at(10**9))
    assert copied.time_to_live == stamped


@pytest.mark.parametrize(
    ("life", "age", "left"),
    [
        (5000, 0, 5000),
        (5000, 1, 4999),
        (5000, 4999, 1),
        (5000, 5000, 5000),
        (5000, 7000, 3000),
        (5000, 9999, 1),
        (5000, 10_000, None),
        (5000, 10**12, None),
        (500, 600, 500),
        (1, 1, 1),
        (5000, -60_000, 5000),
        (500, 200, 300),
        (NINETY_DAYS, 10, NINETY_DAYS - 10),
        (NINETY_DAYS, NINETY_DAYS - 10_000, 10_000),
    ],
)
def test_remaining_counts_from_the_enqueued_time(life: int, age: int, left: int | None) -> None:
    copied = living(life)
    assert Remaining().expires(copied, at(age)) is (left is None)
    assert copied.time_to_live == (life if left is None else left)


def test_remaining_does_not_change_a_message_without_time_to_live_or_enqueued_time() -> None:
    for copied in (message(time_to_live=None), message(None, time_to_live=5000)):
        before = copied.encode()
        assert not Remaining().expires(copied, at(10**9))
        assert copied.encode() == before
        assert Remaining().end(copied, at(10**9)) is None


def test_what_says_that_it_lives_for_ever_or_not_at_all_has_no_time_to_live() -> None:
    for written in (0, LONGEST_IN_HEADER):
        received = message(time_to_live=None)
        received.sections.header = bytes.fromhex("005370c00803404070") + written.to_bytes(4)
        assert received.time_to_live is None
        assert not Remaining().expires(received, at(10**12))
        assert read(received.encode()).time_to_live is None
        assert not read(received.encode()).sections.header


def test_what_lives_for_longer_than_a_header_can_say_does_so_at_the_target() -> None:
    copied = living(NINETY_DAYS)
    assert read(copied.encode()).time_to_live == NINETY_DAYS
    fields = [decode(field)[0] for field in read(copied.encode()).property_fields()[8:10]]
    assert fields == [timestamp(ENQUEUED + NINETY_DAYS), timestamp(ENQUEUED)]
    copied.time_to_live = 1_000
    assert read(copied.encode()).property_fields()[8] == b"\x40"


def read(content: bytes) -> Message:
    return Message.received(content, Origin("west", "q"))


@pytest.mark.parametrize(
    ("life", "left"), [(5000, 2000), (5000, 4500), (900, 1), (1, 1), (NINETY_DAYS, 2000), (None, 2000)]
)
@pytest.mark.parametrize("is_event", [False, True])
def test_what_has_waited_for_its_target_is_encoded_again_if_its_life_differs(
    life: int | None, left: int, *, is_event: bool
) -> None:
    made = living(life)
    if is_event:
        keep_broker_properties(made)
    content = made.encode()
    found = shortened(content, left)
    is_other = (life, left) in {(5000, 2000), (900, 1)}
    assert (found != content) is is_other
    copied = Message.received(found, Origin("east", "q"))
    stored = copied.application_property(TIME_TO_LIVE)
    present = copied.time_to_live if stored is None else stored.payload
    assert present == (left if is_other else life)
    assert (stored is not None) is (is_event and life is not None)


def test_a_property_with_the_name_of_a_stored_life_stays_beside_a_life() -> None:
    own = message(time_to_live=5000, named={TIME_TO_LIVE: uint(5000)})
    copied = Message.received(shortened(own.encode(), 2000), Origin("east", "q"))
    assert (copied.time_to_live, copied.application_property(TIME_TO_LIVE)) == (2000, uint(5000))
