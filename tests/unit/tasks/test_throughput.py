"""The levers that `throughput` chooses, and the advice of `busway check`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shared.review import advice
from shared.tasks.files import load
from shared.tasks.models import TaskFile
from tests.unit.tasks.test_review_entities import host_file

TASK = """
task: copy
source: {{connection: west, queue: orders{source}}}
routes: [{{target: {{connection: east, queue: copies}}{route}}}]
{more}
"""
SESSIONS = ", sessions: true"


def levers(throughput: dict[str, Any], *, sessions: bool = False, **more: Any) -> str:
    task = TaskFile.model_validate(
        {
            "task": "copy",
            "source": {"connection": "west", "queue": "orders", "sessions": sessions},
            "routes": [{"target": {"connection": "east", "queue": "copies"}, **more.pop("route", {})}],
            "throughput": throughput,
            **more,
        }
    )
    return str(task.levers)


@pytest.mark.parametrize(
    ("round_trip", "lanes"),
    [("PT0S", 1), ("PT0.01S", 1), ("PT0.02S", 2), ("PT0.08S", 8), ("PT0.15S", 15), ("PT1S", 16)],
)
def test_without_sessions_the_round_trip_decides(round_trip: str, lanes: int) -> None:
    for plan in ("flex-consumption", "premium", "dedicated"):
        assert levers({"round_trip": round_trip, "plan": plan}) == f"`lanes: {lanes}`"


@pytest.mark.parametrize(
    ("sessions", "plan", "expected"),
    [
        (1, "flex-consumption", "`lanes: 1`"),
        (8, "flex-consumption", "`lanes: 8`"),
        (9, "flex-consumption", "`dispatch: single`"),
        (400, "flex-consumption", "`dispatch: single`"),
        (9, "premium", "`lanes: 9`"),
        (400, "premium", "`lanes: 64`"),
        (400, "dedicated", "`lanes: 64`"),
    ],
)
def test_with_sessions_their_number_and_the_plan_decide(sessions: int, plan: str, expected: str) -> None:
    for round_trip in ("PT0S", "PT0.15S"):
        throughput = {"round_trip": round_trip, "plan": plan, "sessions": sessions}
        assert levers(throughput, sessions=True) == expected


def test_levers_that_the_task_names_win() -> None:
    throughput = {"round_trip": "PT0.08S", "sessions": 400}
    assert levers(throughput, sessions=True, lanes=2) == "`lanes: 2`"
    assert levers({"round_trip": "PT0.08S"}, dispatch="single") == "`dispatch: single`"
    assert levers({"round_trip": "PT0.08S"}, lanes=1) == "`lanes: 1`"
    assert levers(throughput, sessions=True, dispatch="batch") == "`lanes: 8`"
    assert levers(throughput, sessions=True, route={"via": "binding"}) == "`lanes: 8`"


def test_what_is_chosen_names_the_functions() -> None:
    source = {"connection": "west", "queue": "orders"}
    routes = [{"target": {"connection": "east", "queue": "copies"}}]
    document = {"task": "copy", "source": source, "routes": routes, "throughput": {"round_trip": "PT0.03S"}}
    assert TaskFile.model_validate(document).functions() == ["copy", "copy-lane-2", "copy-lane-3"]


@pytest.mark.parametrize(
    ("source", "more", "expected"),
    [
        ("", "throughput: {round_trip: PT0.08S}", ["chooses `lanes: 8`."]),
        ("", "lanes: 4\nthroughput: {round_trip: PT0.08S}", []),
        ("", "lanes: 3\nthroughput: {round_trip: PT0.08S}", ["`lanes: 8` would fit, the task has `lanes: 3`."]),
        ("", "lanes: 64\nthroughput: {round_trip: PT0.08S}", ["`lanes: 8` would fit, the task has `lanes: 64`."]),
        (
            "",
            "dispatch: single\nthroughput: {round_trip: PT0S}",
            ["`lanes: 1` would fit, the task has `dispatch: single`."],
        ),
        (SESSIONS, "throughput: {round_trip: PT0S, sessions: 50}", ["chooses `dispatch: single`."]),
        (SESSIONS, "dispatch: single\nthroughput: {round_trip: PT0S, sessions: 50}", []),
        (
            SESSIONS,
            "throughput: {round_trip: PT0S, sessions: 51}",
            ["chooses `dispatch: single`.", "51 sessions, host.json has maxConcurrentSessions 50: raise it."],
        ),
        ("", "lanes: 3", []),
    ],
)
def test_advice_is_given_where_the_levers_do_not_fit(folder: Path, source: str, more: str, expected: list[str]) -> None:
    folder.joinpath("tasks/copy.yaml").write_text(TASK.format(source=source, route="", more=more), encoding="utf-8")
    host = replace(host_file(), max_concurrent_sessions=50)
    assert advice(load(folder), host) == [f"{folder}/tasks/copy.yaml: throughput: {each}" for each in expected]
