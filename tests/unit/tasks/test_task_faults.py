"""Each fault in a task file is reported with its place in the file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shared.tasks.steps import STEPS
from tests.unit.tasks.task_files import REJECTS, TASK

SOURCE = "queue: orders}\nroutes"
ROUTES = "routes:\n  - target: {connection: east, queue: orders}"

# One fault each: the text in the good task, its replacement, the path of the problem, its text, the hint.
FAULTS = [
    (
        SOURCE,
        "queue: orders, dead_lettr: true}\nroutes",
        "source.dead_lettr",
        "unknown key",
        "did you mean 'dead_letter'?",
    ),
    ("task: copy", "task: copy\nroute: []", "route", "unknown key", "did you mean 'routes'?"),
    ("task: copy", "task: copy\nzzz: 1", "zzz", "unknown key", ""),
    (
        "task: copy",
        "task: copy\nloop_prevention: {max_hop: 3}",
        "loop_prevention.max_hop",
        "unknown key",
        "did you mean 'max_hops'?",
    ),
    (
        "task: copy",
        "task: copy\nloop_prevention: {max_hops: 0}",
        "loop_prevention.max_hops",
        "is 0, expected at least 1",
        "",
    ),
    (
        "task: copy",
        "task: copy\nloop_prevention: {max_hops: '3'}",
        "loop_prevention.max_hops",
        "is '3', expected a whole number",
        "",
    ),
    ("task: copy", "task: copy\nloop_prevention: on", "loop_prevention", "is true, expected off", ""),
    ("task: copy", "task: copy\nttl: kep", "ttl", "is 'kep', expected 'keep' or 'remaining'", ""),
    ("task: copy", "task: copy\nttl: {stamp: PT0S}", "ttl.stamp", "expected more than PT0S", ""),
    (
        "task: copy",
        "task: copy\nlimits: {edit_time: PT0.001S}",
        "limits.edit_time",
        "is PT0.001S, expected at least PT0.01S",
        "",
    ),
    ("task: copy", "task: copy\nttl: {stamp: P50D}", "ttl.stamp", "expected at most 49 days", ""),
    ("task: copy", "task: 1copy", "task", "is '1copy', expected a letter, then letters, digits", ""),
    ("task: copy\n", "", "task", "is missing", ""),
    (SOURCE, "}\nroutes", "source", "names no entity, expected one of queue", ""),
    (SOURCE, "queue: a, topic: b}\nroutes", "source", "names queue and topic, expected one of", ""),
    (SOURCE, "topic: a}\nroutes", "source", "has only one of topic and subscription", ""),
    (SOURCE, "queue: a, consumer_group: g}\nroutes", "source", "has consumer_group", ""),
    (SOURCE, "queue: a, sessions: 1}\nroutes", "source.sessions", "is 1, expected true or false", ""),
    (
        SOURCE,
        "queue: a, dead_letter: 2}\nroutes",
        "source.dead_letter",
        "is 2, expected true or false or 'transfer'",
        "",
    ),
    (SOURCE, "queue: 5}\nroutes", "source.queue", "expected text", ""),
    (SOURCE, "queue: '%ORDERS%'}\nroutes", "source", "has % in queue, expected the name itself", ""),
    (
        SOURCE,
        "queue: a, dead_letter: true, sessions: true}\n" + REJECTS + "routes",
        "source",
        "has sessions and dead_letter",
        "",
    ),
    (SOURCE, "queue: a, rule: {filter: a = 1}}\nroutes", "source", "has a rule, expected only for a subscription", ""),
    (SOURCE, "queue: a, dead_letter: true}\nroutes", "", "has no rejects", ""),
    ("source: {connection: west, queue: orders}", "source: {connection: hub-west, hub: h}", "", "has no rejects", ""),
    ("source: {connection: west, queue: orders}", "source: [west, orders]", "source", "expected a mapping", ""),
    (
        "source: {connection: west",
        "source: {connection: wets",
        "source.connection",
        "unknown connection 'wets'",
        "did you mean 'west'?",
    ),
    (
        "target: {connection: east",
        "target: {connection: nowhere",
        "routes[0].target.connection",
        "unknown connection 'nowhere'",
        "connections.yaml has west, east, hub-west",
    ),
    (
        "target: {connection: east",
        "target: {connection: hub-west",
        "routes[0].target.connection",
        "'hub-west' is of kind event-hubs, expected service-bus",
        "",
    ),
    (
        "source: {connection: west",
        "source: {connection: hub-west",
        "source.connection",
        "'hub-west' is of kind event-hubs, expected service-bus",
        "",
    ),
    (
        SOURCE,
        "hub: h}\n" + REJECTS + "routes",
        "source.connection",
        "'west' is of kind service-bus, expected event-hubs",
        "",
    ),
    (ROUTES, "routes: []", "routes", "expected at least one item", ""),
    (ROUTES, "routes: {}", "routes", "expected a list", ""),
    (
        "target: {connection: east, queue: orders}",
        "target: {connection: east}",
        "routes[0].target",
        "expected one of queue, topic, hub and address",
        "",
    ),
    (
        "target: {connection: east, queue: orders}",
        "target: {connection: hub-west, hub: h, queue: orders}",
        "routes[0].target",
        "expected one of queue, topic, hub and address",
        "",
    ),
    (
        "target: {connection: east, queue: orders}",
        "target: {connection: east, hub: h}",
        "routes[0].target.connection",
        "'east' is of kind service-bus, expected event-hubs",
        "",
    ),
    (
        "target: {connection: east, queue: orders}",
        "target: {connection: east, queue: orders, partition: 3}",
        "routes[0].target",
        "has a partition, expected only for a hub",
        "",
    ),
    (
        "target: {connection: east, queue: orders}",
        "target: {connection: hub-west, hub: h, partition: keep}",
        "",
        "has `partition: keep`, expected a hub as the source: other messages have no partition",
        "",
    ),
    (SOURCE, "queue: a, partitions: [0]}\nroutes", "source", "has partitions, expected only for a hub", ""),
    (
        "source: {connection: west, queue: orders}",
        "source: {connection: hub-west, hub: h, partitions: [0]}\n" + REJECTS,
        "source",
        "with a consumer_group other than $Default",
        "",
    ),
    (
        "source: {connection: west, queue: orders}",
        "source: {connection: hub-west, hub: h, consumer_group: g, partitions: []}\n" + REJECTS,
        "source.partitions",
        "expected at least one item",
        "",
    ),
    (
        "target: {connection: east, queue: orders}",
        "target: {connection: west, queue: Orders}",
        "",
        "sends to its own source",
        "",
    ),
    (
        "source: {connection: west, queue: orders}",
        "lanes: 2\nsource: {connection: hub-west, hub: h}\n" + REJECTS,
        "",
        "has lanes for a hub",
        "",
    ),
    (
        "source: {connection: west, queue: orders}",
        "lanes: 2\nsource: {connection: west, queue: orders, from: envelope}",
        "",
        "has lanes and no sessions",
        "",
    ),
    (
        "source: {connection: west, queue: orders}",
        "dispatch: single\nsource: {connection: hub-west, hub: h}\n" + REJECTS,
        "",
        "has `dispatch: single` for a hub",
        "",
    ),
    (
        "source: {connection: west, queue: orders}",
        "dispatch: single\nlanes: 2\nsource: {connection: west, queue: orders}",
        "",
        "has lanes and `dispatch: single`",
        "",
    ),
    (
        "source: {connection: west, queue: orders}",
        "dispatch: single\nsource: {connection: west, queue: orders, from: envelope}",
        "",
        "has `dispatch: single` and no sessions",
        "",
    ),
    (
        "routes:",
        "dispatch: single\nroutes:\n  - {via: binding, target: {connection: east, queue: other}}",
        "",
        "has `dispatch: single` and `via: binding`",
        "",
    ),
    (
        "source: {connection: west, queue: orders}",
        "throughput: {round_trip: PT0.08S}\nsource: {connection: hub-west, hub: h}\n" + REJECTS,
        "",
        "has throughput for a hub",
        "",
    ),
    (
        "source: {connection: west, queue: orders}",
        "throughput: {round_trip: PT0.08S}\nsource: {connection: west, queue: orders, from: envelope}",
        "",
        "has throughput and no sessions",
        "",
    ),
    (
        "source: {connection: west, queue: orders}",
        "throughput: {round_trip: PT0.08S}\nsource: {connection: west, queue: orders, sessions: true}",
        "",
        "has no throughput.sessions",
        "",
    ),
    (
        "task: copy",
        "task: copy\nthroughput: {round_trip: PT0.08S, sessions: 3}",
        "",
        "has throughput.sessions, and its source has none",
        "",
    ),
    (
        "task: copy",
        "task: copy\nthroughput: {round_trip: 80 millis}",
        "throughput.round_trip",
        "expected a duration, such as 30s, 5m or PT0.08S",
        "",
    ),
    (
        "task: copy",
        "task: copy\nrejects: {connection: west, queue: orders}",
        "",
        "sends to its own source",
        "",
    ),
    (
        "- target: {connection: east",
        "- when: sys.Prio > 5\n    target: {connection: east",
        "routes[0].when",
        "names sys.Prio, expected one of",
        "",
    ),
    ("task: copy", "task: copy\neditors: [{filter: 5}]", "editors[0].filter", "expected text", ""),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault[2]}: {fault[3]}")
def test_every_fault_is_reported_with_its_place(problems: Callable[..., Any], fault: tuple[str, ...]) -> None:
    good, bad, path, problem, hint = fault
    assert good in TASK
    (found,) = problems(copy=TASK.replace(good, bad, 1))
    assert found[0] == ("tasks/copy.yaml" + (f": {path}" if path else ""))
    assert problem in found[1]
    assert found[2] == hint


def test_invalid_rule_is_reported_with_a_mark_below_the_fault(problems: Callable[..., Any]) -> None:
    (found,) = problems(copy=TASK.replace("- target", '- when: "priority >> 5"\n    target'))
    assert found[0] == "tasks/copy.yaml: routes[0].when"
    first, line, mark = found[1].split("\n")
    assert first.startswith("rule, line 1, column 11: got >, expected a value")
    assert line.strip() == "priority >> 5"
    assert line[mark.index("^") :] == "> 5"


@pytest.mark.parametrize("key", ["action", "when"])
def test_the_rules_of_all_routes_are_looked_at(problems: Callable[..., Any], key: str) -> None:
    routes = "\n".join(f"  - {key}: 'SET SET'\n    target: {{connection: east, queue: q{n}}}" for n in range(3))
    found = problems(copy=TASK[: TASK.index("  - target")] + routes)
    assert [path for path, _, _ in found] == [f"tasks/copy.yaml: routes[{number}].{key}" for number in range(3)]


def test_invalid_editor_options_are_reported_with_their_place(
    problems: Callable[..., Any],
) -> None:
    steps = (
        *(
            "{transform: &a {expression: *a}}",
            "{reduce: &b {keep: [*b]}}",
            "{route: &c {x: *c}}",
            "{partition: &d [*d]}",
        ),
        *("{route: {x: {value: 'a.'}}}", "{properties: {rename: {a: repl-b}}}", "{python: 'nowhere:edit'}"),
    )
    found = problems(copy=TASK + f"editors: [{', '.join(steps)}]\n")
    assert [path.removeprefix("tasks/copy.yaml: ") for path, _, _ in found] == [
        *("editors[0].transform.expression", "editors[1].reduce.keep[0]", "editors[2].route.x.value"),
        *("editors[2].route.x.x", "editors[3].partition", "editors[4].route.x.value"),
        *("editors[5].properties.rename.a", "editors[6].python"),
    ]


def test_unknown_editor_is_reported(problems: Callable[..., Any]) -> None:
    found = problems(copy=TASK + "editors: [{fliter: a = 1}, {sort: {}}, {filter: a = 1, sort: {}}, 5, {}]\n")
    assert found == [
        ("tasks/copy.yaml: editors[0]", "unknown editor 'fliter', did you mean 'filter'?", ""),
        ("tasks/copy.yaml: editors[1]", f"unknown editor 'sort', expected one of {', '.join(STEPS)}", ""),
        ("tasks/copy.yaml: editors[2]", "has filter and sort, expected one editor with its options", ""),
        ("tasks/copy.yaml: editors[3]", "has no editor, expected one editor with its options", ""),
        ("tasks/copy.yaml: editors[4]", "has no editor, expected one editor with its options", ""),
    ]


def test_invalid_schema_is_reported_with_the_other_problems(folder: Path, problems: Callable[..., Any]) -> None:
    folder.joinpath("bad.json").write_text('{"type": "objekt"}', encoding="utf-8")
    found = problems(
        copy=TASK + "editors: [{validate: {schema: bad.json}}, {validate: {schema: no.json}}]\n",
        other=TASK.replace("copy", "other").replace("west", "wets"),
    )
    assert [(path, text) for path, text, _ in found] == [
        (
            "tasks/copy.yaml: editors[0].validate.schema",
            "bad.json: $.type: 'objekt' is not valid under any of the given schemas",
        ),
        ("tasks/copy.yaml: editors[1].validate.schema", "no.json: the file is missing"),
        ("tasks/other.yaml: source.connection", "unknown connection 'wets'"),
    ]


def test_editor_options_are_reported_by_their_path(problems: Callable[..., Any]) -> None:
    found = problems(
        copy=TASK
        + "editors: [{validate: 5}, {validate: {}}, {validate: {max_size: -1, shcema: x}}, {filter: a >> 1}]\n"
    )
    assert [(path, text.splitlines()[0]) for path, text, _ in found] == [
        ("tasks/copy.yaml: editors[0].validate", "is 5, expected a mapping"),
        (
            "tasks/copy.yaml: editors[1].validate",
            "checks nothing, expected schema, avro, required_properties, content_type or max_size",
        ),
        ("tasks/copy.yaml: editors[2].validate.max_size", "is -1, expected at least 0"),
        ("tasks/copy.yaml: editors[2].validate.shcema", "unknown key"),
        (
            "tasks/copy.yaml: editors[3].filter",
            "rule, line 1, column 4: got >, expected a value: a property, a constant, a parameter or a function",
        ),
    ]
