"""The reject limit: a broken task stops, and a producer of bad messages does not stop a working task."""

from shared.line.rejects import RejectLimit


def admitted(limit: RejectLimit, *, by_target: bool = False) -> int:
    """Return how many messages are rejected before the task stops, up to 100,000."""
    return next((count for count in range(100_000) if not limit.admit(by_target=by_target)), 100_000)


def test_task_that_has_sent_no_message_stops_after_the_limit() -> None:
    assert admitted(RejectLimit(100)) == 100
    assert admitted(RejectLimit(100), by_target=True) == 100


def test_flood_between_good_messages_does_not_stop_a_task() -> None:
    limit = RejectLimit(100)
    for _ in range(500):
        limit.good(1)
        assert all(limit.admit(by_target=False) for _ in range(100))


def test_burst_after_many_good_messages_does_not_stop_a_task() -> None:
    limit = RejectLimit(100)
    for _ in range(1000):
        limit.good(1)
    assert admitted(limit) == 10_000


def test_target_that_begins_to_refuse_everything_stops_the_task_sooner() -> None:
    limit = RejectLimit(100)
    for _ in range(1000):
        limit.good(1)
    assert admitted(limit, by_target=True) == 1000


def test_stopped_task_continues_after_a_good_message() -> None:
    limit = RejectLimit(3)
    assert admitted(limit) == 3
    limit.good(1)
    assert admitted(limit) == 3
    assert limit.in_a_row == 3


def test_without_a_limit_any_number_is_rejected() -> None:
    assert admitted(RejectLimit(None)) == 100_000
