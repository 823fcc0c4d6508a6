"""What the app does beside the messages shares one timer, and what it measured leaves with the invocation."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import azure.functions as func
import pytest

from functions.timers import NAME, Duty, DutyFailed, register_timers, spaced
from shared.assembly.measurements import EVERY_MINUTE
from shared.errors import TargetUnavailable
from shared.tasks.switches import switch_of, switched_on
from tests.unit.infra.deployments import EXAMPLES, loaded

HALF_MINUTE = "*/30 * * * * *"


class Noted:
    """A duty's work that notes its calls, and fails with *error*."""

    def __init__(self, calls: list[str], name: str, error: Exception | None = None) -> None:
        self.calls, self.name, self.error = calls, name, error

    async def __call__(self) -> None:
        self.calls.append(self.name)
        if self.error is not None:
            raise self.error


def timers(duties: list[Duty], flush: Callable[[float], None] = lambda _: None) -> Mapping[str, tuple[str, Any]]:
    """Return the schedule and the function of each timer, by its name."""
    app = func.FunctionApp()
    register_timers(app, duties, flush)
    found: dict[str, tuple[str, Any]] = {}
    for function in app.get_functions():
        (binding,) = function.get_bindings()
        found[str(function.get_function_name())] = (cast("Any", binding).schedule, function.get_user_function())
    return found


def call(function: Callable[[Any], Awaitable[None]]) -> None:
    asyncio.run(cast("Any", function(SimpleNamespace(past_due=False))))


def test_all_duties_without_a_schedule_of_their_own_share_one_timer() -> None:
    """FN51: each timer is scaled by itself and pays a second for each run."""
    calls: list[str] = []
    names = ("measurements", "losses", "heartbeats", "nights")
    found = timers([Duty(name, Noted(calls, name)) for name in names] + [Duty("own", Noted(calls, "own"), HALF_MINUTE)])
    assert {name: schedule for name, (schedule, _) in found.items()} == {NAME: EVERY_MINUTE, "own": HALF_MINUTE}
    call(found[NAME][1])
    assert sorted(calls) == sorted(names)


def test_measurements_are_exported_before_the_function_returns() -> None:
    """FN14: the instance may be drained right after the run."""
    calls: list[str] = []
    found = timers([Duty("measure", Noted(calls, "measured"))], lambda _: calls.append("flushed"))
    call(found[NAME][1])
    assert calls == ["measured", "flushed"]


def test_a_duty_that_fails_keeps_no_other_from_its_work_and_fails_the_invocation() -> None:
    calls: list[str] = []
    duties = [
        Duty("first", Noted(calls, "first", TargetUnavailable("busy"))),
        Duty("second", Noted(calls, "second", ValueError("SharedAccessKey=none"))),
        Duty("third", Noted(calls, "third")),
    ]
    found = timers(duties, lambda _: calls.append("flushed"))
    with pytest.raises(DutyFailed) as raised:
        call(found[NAME][1])
    assert str(raised.value) == "first: busy; second: unexpected ValueError"
    assert calls == ["first", "second", "third", "flushed"]


def test_spaced_work_is_done_again_after_its_time_or_a_failure() -> None:
    calls: list[str] = []
    now = 0.0
    noted = Noted(calls, "work")
    work = spaced(noted, 900, lambda: now)

    async def minutes(count: int) -> None:
        nonlocal now
        for _ in range(count):
            await work()
            now += 60

    asyncio.run(minutes(31))
    assert len(calls) == 3
    noted.error = TargetUnavailable("busy")
    now += 900
    for _ in range(2):
        with pytest.raises(TargetUnavailable):
            asyncio.run(cast("Any", work()))
    assert len(calls) == 5


@pytest.mark.parametrize(
    ("value", "is_on"), [("true", False), ("1", False), ("True", False), ("false", True), ("", True)]
)
def test_a_task_that_a_setting_switches_off_has_no_function(value: str, is_on: bool) -> None:
    """FN09: Linux takes only letters, digits, . and _ in the name of a setting, and no . on every plan."""
    configuration, _ = loaded(EXAMPLES["plain-copy"])
    switch = switch_of("orders-west-to-east")
    assert switch == "BUSWAY_OFF_orders_west_to_east"
    tasks = switched_on(configuration, {switch: value}).tasks
    assert ("orders-west-to-east" in {task.task for task in tasks}) is is_on
