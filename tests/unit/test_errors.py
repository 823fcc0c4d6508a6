from datetime import timedelta

import pytest

from shared.errors import (
    BuswayError,
    ConfigError,
    MessageRejected,
    Problem,
    TargetRefused,
    TargetUnavailable,
    requested_wait,
)

PROBLEMS = [
    Problem("tasks/orders.yaml: routes[0].target", "no connection is named 'esat'", "did you mean 'east'?"),
    Problem("connections.yaml: west", "the setting WEST is not set"),
]


def test_there_are_four_errors_below_one_root() -> None:
    assert set(BuswayError.__subclasses__()) >= {ConfigError, MessageRejected, TargetUnavailable, TargetRefused}
    assert BuswayError.__base__ is Exception


def test_a_config_error_has_every_problem_on_a_line_of_its_own() -> None:
    error = ConfigError(PROBLEMS)
    assert error.problems == tuple(PROBLEMS)
    assert str(error).splitlines() == [
        "tasks/orders.yaml: routes[0].target: no connection is named 'esat' (did you mean 'east'?)",
        "connections.yaml: west: the setting WEST is not set",
    ]


def test_the_problems_of_a_config_error_do_not_change_with_the_list_they_came_in() -> None:
    problems = list(PROBLEMS)
    error = ConfigError(problems)
    problems.clear()
    assert len(error.problems) == 2


def test_a_problem_is_a_value() -> None:
    assert Problem("a", "b") == Problem("a", "b", "")
    assert len({Problem("a", "b"), Problem("a", "b"), Problem("a", "c")}) == 2


def test_a_rejected_message_has_a_reason_for_machines_and_a_description_for_people() -> None:
    error = MessageRejected("SchemaMismatch", "$.total is a string, expected a number")
    assert (error.reason, error.description) == ("SchemaMismatch", "$.total is a string, expected a number")
    assert str(error) == "SchemaMismatch: $.total is a string, expected a number"


def test_an_unavailable_target_may_say_how_long_to_wait() -> None:
    assert TargetUnavailable("orders: busy").retry_after is None
    error = TargetUnavailable("orders: busy", retry_after=timedelta(seconds=4))
    assert error.retry_after == timedelta(seconds=4)
    assert str(error) == "orders: busy"


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("0", 0),
        ("7", 7),
        ("86401", 86_400),
        ("9" * 5_000, 86_400),  # more than a timedelta holds, and more than Python converts
        (None, None),
        ("", None),
        ("-1", None),
        ("\N{SUPERSCRIPT TWO}", None),
        ("Fri, 31 Dec 2099 23:59:59 GMT", None),
    ],
)
def test_a_requested_wait_is_at_most_a_day(header: str | None, seconds: int | None) -> None:
    assert requested_wait(header) == (None if seconds is None else timedelta(seconds=seconds))


def test_a_refusal_says_what_was_refused() -> None:
    assert str(TargetRefused("orders: not found")) == "orders: not found"
