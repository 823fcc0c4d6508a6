"""Loops of tasks: which the review reports, and what stops one."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.tasks.conftest import names, subscribed, task, to


def test_a_mesh_with_marks_is_right(found: Callable[..., Any]) -> None:
    sites = ("west", "east", "north")
    pairs = [(one, other) for one in sites for other in sites if one != other]
    assert found(*(task(f"{a}-{b}", subscribed(a, b), to(b, "topic: events")) for a, b in pairs)) == []


def test_marks_alone_end_a_loop(found: Callable[..., Any]) -> None:
    tasks = [
        task(f"{a}-{b}", subscribed(a, b), to(b, "topic: events"), more="loop_prevention: off\n")
        for a, b in (("west", "east"), ("east", "west"))
    ]
    assert found(*tasks) == []


def test_the_path_alone_carries_round_a_ring(found: Callable[..., Any]) -> None:
    ring = (("west", "east"), ("east", "north"), ("north", "west"))
    assert found(*(task(f"{a}-{b}", subscribed(a, b, ""), to(b, "topic: events")) for a, b in ring)) == []


def test_growing_text_is_not_followed_endlessly(found: Callable[..., Any]) -> None:
    doubling = "\n    action: SET p = p + p"
    tasks = [
        task(
            "there",
            "{connection: west, queue: orders}",
            to("east", more="\n    when: p = 'ab'" + doubling),
            to("east", more=doubling),
            more="loop_prevention: off\n",
        ),
        task("back", "{connection: east, queue: orders}", to("west", more=doubling), more="loop_prevention: off\n"),
    ]
    assert names(found(*tasks)) == ["possible-loop"]


def test_one_guard_stops_a_loop_of_two_tasks(found: Callable[..., Any]) -> None:
    unguarded = task("there", "{connection: west, queue: orders}", to("east"), more="loop_prevention: off\n")
    assert found(unguarded, task("back", "{connection: east, queue: orders}", to("west"))) == []


def test_route_for_messages_that_failed_twice_stops_a_dead_letter_loop(found: Callable[..., Any]) -> None:
    auxiliary = "when: \"[repl-dlq-source] LIKE '%;%'\"\n    "
    tasks = [
        task(
            f"{a}-{b}",
            f"{{connection: {a}, queue: orders, dead_letter: true}}",
            auxiliary + to(a, "queue: auxiliary"),
            to(b),
            more="loop_prevention: off\n",
        )
        for a, b in (("west", "east"), ("east", "west"))
    ]
    assert found(*tasks) == []


def test_loop_through_unknown_rules_is_possible(found: Callable[..., Any]) -> None:
    tasks = [
        task(f"{a}-{b}", subscribed(a, b, ""), to(b, "topic: events"), more="loop_prevention: off\n")
        for a, b in (("west", "east"), ("east", "west"))
    ]
    assert found(*tasks) == [("possible-loop", "document 1: routes[0]")]


@pytest.mark.parametrize(
    ("condition", "name"),
    [("kind = 'order'", "endless-loop"), ("kind LIKE 'order%'", "possible-loop"), ("sys.Label = 'a'", "endless-loop")],
)
def test_same_condition_in_both_directions_does_not_stop_a_loop(
    found: Callable[..., Any], condition: str, name: str
) -> None:
    tasks = [
        task(
            f"{a}-{b}",
            f"{{connection: {a}, queue: orders}}",
            f'when: "{condition}"\n    ' + to(b),
            to(b, "queue: rest"),
            more="loop_prevention: off\n",
        )
        for a, b in (("west", "east"), ("east", "west"))
    ]
    assert names(found(*tasks)) == [name]


def test_exclusive_conditions_are_no_loop(found: Callable[..., Any]) -> None:
    tasks = [
        task(
            f"{a}-{b}",
            f"{{connection: {a}, queue: orders}}",
            f"when: \"kind = '{kind}'\"\n    " + to(b),
            to(b, "queue: rest"),
            more="loop_prevention: off\n",
        )
        for a, b, kind in (("west", "east", "there"), ("east", "west", "back"))
    ]
    assert found(*tasks) == []


def test_action_that_removes_the_path_allows_a_loop(found: Callable[..., Any]) -> None:
    forgetting = '\n    action: "REMOVE [repl-path]"'
    tasks = [
        task(f"{a}-{b}", f"{{connection: {a}, queue: orders}}", to(b, more=forgetting))
        for a, b in (("west", "east"), ("east", "west"))
    ]
    assert found(*tasks) == [
        ("endless-loop", "document 1: routes[0]"),
        ("history-changed", "document 1: routes[0].action"),
        ("history-changed", "document 2: routes[0].action"),
    ]


def test_mark_stops_a_chain_without_a_loop(found: Callable[..., Any]) -> None:
    there = task("there", subscribed("west", "east"), to("east", "topic: events"))
    onward = task("onward", subscribed("east", "north"), to("north", "topic: events"))
    assert found(there, onward) == [("mark-ends-chain", "document 2: source.rule.filter")]


def test_too_many_loops_are_reported_as_such(found: Callable[..., Any]) -> None:
    sites = ("west", "east", "north")
    tasks = [
        task(
            f"{a}-{b}-{entity}",
            subscribed(a, f"{b}-{entity}", ""),
            to(b, "topic: events"),
            more="loop_prevention: off\n",
        )
        for a in sites
        for b in sites
        for entity in ("x", "y")
        if a != b
    ]
    found_names = names(found(*tasks))
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
def test_mark_counts_unless_an_editor_removes_it(found: Callable[..., Any], editor: str, is_loop: bool) -> None:
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
def test_mark_of_another_type_is_reported_if_nothing_else_sets_it(
    found: Callable[..., Any], editor: str, is_reported: bool
) -> None:
    first = task("first", "{connection: west, queue: a}", to("east", more="\n    action: SET mark = 1"))
    more = f"editors: [{editor}]\n"
    second = task("second", "{connection: north, queue: a}", to("east", more="\n    when: mark = '1'"), more=more)
    assert ("mark-of-another-type" in names(found(first, second))) is is_reported
