"""Loops of tasks: which the review reports, and what stops one."""

from typing import Any

import pytest

from tests.unit.tasks.conftest import MARKED, names, subscribed, task, to

SITES = ("west", "east", "north")
DEAD_TWICE = "when: \"[repl-dlq-source] LIKE '%;%'\"\n    "
DOUBLING = "\n    action: SET p = p + p"
UNGUARDED = "loop_prevention: off\n"
BOTH_WAYS = (("west", "east"), ("east", "west"))
RING = (("west", "east"), ("east", "north"), ("north", "west"))
MESH = tuple((one, other) for one in SITES for other in SITES if one != other)


def events(a: str, b: str, rule: str = MARKED, *, suffix: str = "", more: str = "") -> str:
    """Return the task that carries the events of *a* to *b*."""
    return task(f"{a}-{b}{suffix}", subscribed(a, b + suffix, rule), to(b, "topic: events"), more=more)


def orders(a: str, b: str, *routes: str, source: str = "", more: str = UNGUARDED) -> str:
    """Return the task that carries the orders of *a* to *b*, or by *routes*."""
    return task(f"{a}-{b}", f"{{connection: {a}, queue: orders{source}}}", *(routes or [to(b)]), more=more)


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        pytest.param([events(a, b) for a, b in MESH], [], id="a mesh with marks is right"),
        pytest.param([events(a, b, more=UNGUARDED) for a, b in BOTH_WAYS], [], id="marks alone end a loop"),
        pytest.param([events(a, b, "") for a, b in RING], [], id="the path alone carries round a ring"),
        pytest.param(
            [orders("west", "east"), orders("east", "west", more="")], [], id="one guard stops a loop of two tasks"
        ),
        pytest.param(
            [
                orders(a, b, DEAD_TWICE + to(a, "queue: auxiliary"), to(b), source=", dead_letter: true")
                for a, b in BOTH_WAYS
            ],
            [],
            id="a route for messages that failed twice stops a loop of dead letters",
        ),
        pytest.param(
            [orders(a, b, f"when: \"kind = '{a}'\"\n    {to(b)}", to(b, "queue: rest")) for a, b in BOTH_WAYS],
            [],
            id="exclusive conditions are no loop",
        ),
        pytest.param(
            [events(a, b, "", more=UNGUARDED) for a, b in BOTH_WAYS],
            [("possible-loop", "document 1: routes[0]")],
            id="a loop through unknown rules is possible",
        ),
        pytest.param(
            [orders(a, b, to(b, more='\n    action: "REMOVE [repl-path]"'), more="") for a, b in BOTH_WAYS],
            [
                ("endless-loop", "document 1: routes[0]"),
                ("history-changed", "document 1: routes[0].action"),
                ("history-changed", "document 2: routes[0].action"),
            ],
            id="an action that removes the path allows a loop",
        ),
        pytest.param(
            [events("west", "east"), events("east", "north")],
            [("mark-ends-chain", "document 2: source.rule.filter")],
            id="a mark stops a chain without a loop",
        ),
        pytest.param(
            [
                orders("west", "east", to("east", more=f"\n    when: p = 'ab'{DOUBLING}"), to("east", more=DOUBLING)),
                orders("east", "west", to("west", more=DOUBLING)),
            ],
            [("possible-loop", "document 1: routes[1]")],
            id="growing text is not followed endlessly",
        ),
    ],
)
def test_loops(found: Any, tasks: list[str], expected: list[tuple[str, str]]) -> None:
    assert found(*tasks) == expected


@pytest.mark.parametrize(
    ("condition", "name"),
    [("kind = 'order'", "endless-loop"), ("kind LIKE 'order%'", "possible-loop"), ("sys.Label = 'a'", "endless-loop")],
)
def test_same_condition_in_both_directions_does_not_stop_a_loop(found: Any, condition: str, name: str) -> None:
    tasks = [orders(a, b, f'when: "{condition}"\n    {to(b)}', to(b, "queue: rest")) for a, b in BOTH_WAYS]
    assert names(found(*tasks)) == [name]


def test_too_many_loops_are_reported_as_such(found: Any) -> None:
    found_names = names(found(*(events(a, b, "", suffix=e, more=UNGUARDED) for a, b in MESH for e in ("-x", "-y"))))
    assert found_names.count("possible-loop") == 12
    assert found_names[-1] == "too-many-ways"


@pytest.mark.parametrize(
    ("editor", "is_loop"),
    [
        ("filter: replication IS NULL", False),
        ("{properties: {action: 'SET a = 1'}}", False),
        ("{properties: {remove: [repli*]}}", True),
        ("{properties: {rename: {replication: mark}}}", True),
        ("{properties: {action: 'REMOVE replication'}}", True),
        ("{python: 'copy:copy'}", True),
        ("{route: {replication: {value: a}}}", True),
        ("{transform: {expression: a}}", False),
        ("{encrypt: {key: k}}", False),
        ("{sign: {key: k}}, {attest: {key: k}}, {verify: {key: k, remove: true}}", False),
        ("{sign: {key: k, into: Replication}}", True),
    ],
)
def test_mark_counts_unless_an_editor_removes_it(found: Any, editor: str, is_loop: bool) -> None:
    editors = editor if editor.startswith("{") else "{" + editor + "}"
    more = f"loop_prevention: off\neditors: [{editors}]\n"
    there = task("there", subscribed("west", "r"), to("east", "topic: events"), more=more)
    back = task("back", subscribed("east", "r"), to("west", "topic: events"), more=more)
    assert any("loop" in name for name in names(found(there, back))) is is_loop


@pytest.mark.parametrize(
    ("editor", "is_reported"),
    [
        ("{filter: 1 = 1}", True),
        ("{route: {Mark: {value: a}}}", False),
        ("{properties: {rename: {old: mark}}}", False),
        ("{properties: {action: \"SET mark = '1'\"}}", False),
        ("{python: 'copy:copy'}", False),
        ("{sign: {key: k}}", True),
        ("{sign: {key: k, into: Mark}}", False),
    ],
)
def test_mark_of_another_type_is_reported_if_nothing_else_sets_it(found: Any, editor: str, is_reported: bool) -> None:
    first = task("first", "{connection: west, queue: a}", to("east", more="\n    action: SET mark = 1"))
    more = f"editors: [{editor}]\n"
    second = task("second", "{connection: north, queue: a}", to("east", more="\n    when: mark = '1'"), more=more)
    assert ("mark-of-another-type" in names(found(first, second))) is is_reported
