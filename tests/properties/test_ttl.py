"""Remaining time to live: with skewed clocks, over any number of hops, it never grows."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from shared.message.arrival import Origin
from shared.message.ttl import CLOCK_SKEW, MIN_MILLISECONDS, Remaining
from tests import messages
from tests.messages import ENQUEUED

SKEW = round(CLOCK_SKEW.total_seconds() * 1000)
LONGEST = 2**34

# The largest number of a header means forever.
lives = st.integers(MIN_MILLISECONDS, 2000) | st.integers(MIN_MILLISECONDS, LONGEST).filter(
    lambda life: life != 2**32 - 1
)
skews = st.integers(-SKEW, SKEW)


def passed_on(life: Any, enqueued: Any, now: Any) -> Any:
    """Return the time to live of the copy at *now*, None if the message is withheld."""
    message = messages.message(1, enqueued=enqueued, origin=Origin("west", "q"))
    message.time_to_live = life
    moment = datetime.fromtimestamp(now / 1000, UTC)
    return None if Remaining().expires(message, moment) else message.time_to_live


@given(lives, st.data())
def test_live_message_gets_the_remaining_time_to_live_within_the_skew(life: Any, data: Any) -> None:
    age = data.draw(st.integers(0, life - 1) | st.integers(0, min(life - 1, 3 * SKEW)))
    skew = data.draw(skews)
    left = passed_on(life, ENQUEUED, ENQUEUED + age + skew)
    assert left is not None
    assert MIN_MILLISECONDS <= left <= life
    assert abs(left - (life - age)) <= SKEW


@given(lives, st.integers(0, 10**12), skews)
def test_certainly_expired_message_is_withheld(life: Any, beyond: Any, skew: Any) -> None:
    assert passed_on(life, ENQUEUED, ENQUEUED + life + 2 * SKEW + beyond + skew) is None


@given(lives, st.integers(-(10**11), 10**11))
@example(1, 0)
@example(1, SKEW)
@example(LONGEST, -SKEW)
def test_time_to_live_never_disappears_or_grows_with_any_clocks(life: Any, difference: Any) -> None:
    left = passed_on(life, ENQUEUED, ENQUEUED + difference)
    assert left is None or MIN_MILLISECONDS <= left <= life


@given(lives, st.lists(st.tuples(st.integers(0, 60_000), skews, skews), min_size=5, max_size=5))
def test_five_hops_never_lengthen_the_time_to_live(life: Any, hops: Any) -> None:
    """Each hop: how long the message waited, and the clock errors of its site and of the app."""
    moment = ENQUEUED
    end = moment + life
    for lay, site_skew, app_skew in hops:
        if lay >= life:
            return  # it expired at the source
        enqueued, moment = moment + site_skew, moment + lay
        left = passed_on(life, enqueued, moment + app_skew)
        if left is None:
            # Both clocks may be wrong by the allowed skew, so they can differ by twice that.
            assert abs(app_skew - site_skew) > SKEW
            return
        assert MIN_MILLISECONDS <= left <= life
        assert abs((moment + left) - end) <= abs(app_skew - site_skew) + SKEW
        life, end = left, moment + left


@given(lives, st.lists(st.integers(0, 60_000), min_size=5, max_size=5))
def test_five_hops_with_equal_clocks_keep_the_expiry(life: Any, hops: Any) -> None:
    moment = ENQUEUED
    end = moment + life
    for lay in hops:
        enqueued, moment = moment, moment + lay
        if moment >= end:
            return
        left = passed_on(life, enqueued, moment)
        assert left == end - moment
        life = left
