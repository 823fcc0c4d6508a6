"""When a client leaves, under a clock of the test."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from busway_clients.endpoints.endpoint import Endpoint
from busway_clients.endpoints.switching import Step, Switching

WEST, EAST, NORTH = (Endpoint(f"{site}.servicebus.windows.net") for site in ("west", "east", "north"))
FALLBACK = Endpoint(WEST.namespace, 443)


def settled_client(drain_seconds: float = 30.0, retry_seconds: float = 5.0) -> Any:
    switching = Switching(drain_seconds, retry_seconds)
    switching.note_moved(WEST, (WEST,), 0)
    return switching


def test_client_stays_while_the_namespace_is_the_same() -> None:
    assert Switching(30, 5).next_step((WEST,), 0, 0) is Step.MOVE
    assert settled_client().next_step((FALLBACK, WEST), 0, 0) is Step.STAY


def test_drain_is_limited_and_counts_from_the_change() -> None:
    switching = settled_client()
    assert [switching.next_step((EAST,), 1, second) for second in (100, 129.9, 130)] == [
        Step.DRAIN,
        Step.DRAIN,
        Step.MOVE,
    ]
    assert switching.next_step((EAST,), 0, 101) is Step.MOVE
    assert switching.next_step((NORTH,), 1, 135) is Step.DRAIN  # another change, another wait
    assert switching.drain_seconds_left(140) == 25


def test_a_reverted_change_is_forgotten() -> None:
    switching = settled_client()
    assert switching.next_step((EAST,), 1, 100) is Step.DRAIN
    assert switching.next_step((WEST,), 1, 110) is Step.STAY
    assert switching.next_step((EAST,), 1, 200) is Step.DRAIN
    assert switching.drain_seconds_left(200) == 30


def test_only_an_endpoint_that_failed_to_open_is_skipped_for_a_while() -> None:
    switching = settled_client()
    switching.note_failed((EAST,), 10)
    assert [switching.next_step((EAST,), 0, second) for second in (10, 14.9, 15)] == [Step.STAY, Step.STAY, Step.MOVE]
    switching.note_failed((EAST,), 20)
    assert switching.next_step((NORTH,), 0, 21) is Step.MOVE


def test_only_endpoints_before_the_current_one_are_tried() -> None:
    switching = settled_client()
    assert switching.candidates((EAST, NORTH)) == (EAST, NORTH)
    assert switching.candidates((EAST, WEST, NORTH)) == (EAST,)
    switching.note_moved(NORTH, (EAST, NORTH), 50)
    assert switching.next_step((EAST, NORTH), 0, 51) is Step.STAY
    assert switching.next_step((EAST, NORTH), 0, 55) is Step.MOVE


@given(
    st.lists(
        st.tuples(
            st.sampled_from([(WEST,), (EAST,), (EAST, WEST), (NORTH, EAST)]), st.integers(0, 2), st.floats(0, 60)
        ),
        max_size=30,
    )
)
def test_wait_for_unsettled_messages_is_limited(steps: Any) -> None:
    switching, now = settled_client(), 0.0
    wanted_before, since = None, 0.0
    for wanted, held, seconds in steps:
        now += seconds
        if wanted != wanted_before:
            wanted_before, since = wanted, now
        step = switching.next_step(wanted, held, now)
        if switching.current.namespace == wanted[0].namespace:
            assert step is Step.STAY
        elif step is Step.MOVE:
            assert held == 0 or now - since >= 30
            switching.note_moved(wanted[0], wanted, now)
        else:
            assert step is Step.DRAIN
            assert held > 0
            assert switching.drain_seconds_left(now) > 0
