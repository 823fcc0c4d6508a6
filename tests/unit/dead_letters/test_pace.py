from hypothesis import given
from hypothesis import strategies as st

from shared.dead_letters.pace import Pace

# What is sent at once, how long that takes, and how long nothing can be sent afterwards.
STEPS = st.lists(st.tuples(st.integers(1, 100), st.floats(0, 3), st.floats(0, 50)), min_size=1, max_size=30)


@given(STEPS, st.floats(0.5, 1_000))
def test_no_send_begins_before_the_rate_allows_it(steps: list[tuple[int, float, float]], rate: float) -> None:
    pace, now, sends = Pace(), 1_000.0, list[tuple[float, int]]()
    for count, takes, pause in steps:
        pace.begin(now)
        sends.append((now, count))
        now += takes
        now += pace.seconds_after(count, rate, now) + pause
    for first in range(len(sends)):
        for last in range(first, len(sends)):
            sent = sum(count for _, count in sends[first:last])
            assert sent <= rate * (sends[last][0] - sends[first][0]) + 1e-6


def test_time_without_sends_is_not_caught_up() -> None:
    pace = Pace()
    pace.begin(0.0)
    assert pace.seconds_after(10, 10, 0.5) == 0.5
    pace.begin(100.0)
    assert pace.seconds_after(10, 10, 100.25) == 0.75


def test_without_a_rate_nothing_waits() -> None:
    pace = Pace()
    pace.begin(0.0)
    assert pace.seconds_after(1_000, None, 0.0) == 0.0
