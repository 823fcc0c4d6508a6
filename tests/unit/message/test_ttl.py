from datetime import UTC, datetime, timedelta

import pytest

from shared.message.ttl import MAX_MILLISECONDS, Keep, Remaining, Stamp
from tests.messages import ENQUEUED, message


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
        (timedelta(days=10_000), MAX_MILLISECONDS),
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
        (MAX_MILLISECONDS, 0, MAX_MILLISECONDS),
    ],
)
def test_remaining_counts_from_the_enqueued_time(life: int, age: int, left: int | None) -> None:
    copied = message(time_to_live=life)
    assert Remaining().expires(copied, at(age)) is (left is None)
    assert copied.time_to_live == (life if left is None else left)


def test_remaining_does_not_change_a_message_without_time_to_live_or_enqueued_time() -> None:
    for copied in (message(time_to_live=None), message(time_to_live=0), message(None, time_to_live=5000)):
        before = copied.encode()
        assert not Remaining().expires(copied, at(10**9))
        assert copied.encode() == before
