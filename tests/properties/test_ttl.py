"""Lives that are handed on: by clocks that are apart, over any number of hops, and never longer than they were."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from shared.message.arrival import Origin
from shared.message.ttl import CLOCK_SKEW, MAX_MILLISECONDS, MIN_MILLISECONDS, Remaining
from tests import messages
from tests.messages import ENQUEUED

SKEW = round(CLOCK_SKEW.total_seconds() * 1000)

lives = st.integers(MIN_MILLISECONDS, 2000) | st.integers(MIN_MILLISECONDS, MAX_MILLISECONDS)
skews = st.integers(-SKEW, SKEW)


def passed_on(life: Any, enqueued: Any, now: Any) -> Any:
    """Return the life of the copy by a clock that says *now*, None where the message is withheld."""
    message = messages.message(1, time_to_live=life, enqueued=enqueued, origin=Origin("west", "q"))
    moment = datetime.fromtimestamp(now / 1000, UTC)
    return None if Remaining().expires(message, moment) else message.time_to_live


@given(lives, st.data())
def test_what_the_source_holds_for_alive_is_carried_on_with_what_is_left_give_or_take_the_skew(
    life: Any, data: Any
) -> None:
    age = data.draw(st.integers(0, life - 1) | st.integers(0, min(life - 1, 3 * SKEW)))
    skew = data.draw(skews)
    left = passed_on(life, ENQUEUED, ENQUEUED + age + skew)
    assert left is not None
    assert MIN_MILLISECONDS <= left <= life
    assert abs(left - (life - age)) <= SKEW


@given(lives, st.integers(0, 10**12), skews)
def test_what_is_surely_over_is_withheld(life: Any, beyond: Any, skew: Any) -> None:
    assert passed_on(life, ENQUEUED, ENQUEUED + life + 2 * SKEW + beyond + skew) is None


@given(lives, st.integers(-(10**11), 10**11))
@example(1, 0)
@example(1, SKEW)
@example(MAX_MILLISECONDS, -SKEW)
def test_a_life_never_becomes_none_nothing_or_longer_whatever_the_clocks_say(life: Any, difference: Any) -> None:
    left = passed_on(life, ENQUEUED, ENQUEUED + difference)
    assert left is None or MIN_MILLISECONDS <= left <= life


@given(lives, st.lists(st.tuples(st.integers(0, 60_000), skews, skews), min_size=5, max_size=5))
def test_five_hops_never_lengthen_a_life(life: Any, hops: Any) -> None:
    """Each hop: how long the message lay there, and by how much the clocks of its site and of the app are wrong."""
    moment = ENQUEUED
    end = moment + life
    for lay, site_skew, app_skew in hops:
        if lay >= life:
            return  # it has expired where it lay
        enqueued, moment = moment + site_skew, moment + lay
        left = passed_on(life, enqueued, moment + app_skew)
        if left is None:
            # Both clocks are wrong here, so the difference can be twice the skew that one of them is allowed.
            assert abs(app_skew - site_skew) > SKEW
            return
        assert MIN_MILLISECONDS <= left <= life
        assert abs((moment + left) - end) <= abs(app_skew - site_skew) + SKEW
        life, end = left, moment + left


@given(lives, st.lists(st.integers(0, 60_000), min_size=5, max_size=5))
def test_with_clocks_that_agree_five_hops_end_a_life_when_the_first_would_have(life: Any, hops: Any) -> None:
    moment = ENQUEUED
    end = moment + life
    for lay in hops:
        enqueued, moment = moment, moment + lay
        if moment >= end:
            return
        left = passed_on(life, enqueued, moment)
        assert left == end - moment
        life = left
