"""Each fault in a task file is reported with its place in the file."""

from pathlib import Path
from typing import Any

import pytest

from shared.tasks.steps import STEPS
from tests.unit.tasks.task_files import REJECTS, TASK

QUEUE, HUB = "connection: west, queue: orders", "connection: hub-west, hub: h"
ENVELOPES = f"{QUEUE}, from: envelope"
TARGET, CONNECTION = "routes[0].target", "routes[0].target.connection"
THROUGHPUT = "throughput: {round_trip: PT0.08S"


def task(more: str = "", *, source: str = QUEUE, target: str = "connection: east, queue: orders") -> str:
    return f"task: copy\nsource: {{{source}}}\nroutes:\n  - target: {{{target}}}\n{more}"


# One fault each: the task, the path of the problem, its text, the hint.
FAULTS: list[tuple[str, ...]] = [
    (task(source=f"{QUEUE}, dead_lettr: true"), "source.dead_lettr", "unknown key", "did you mean 'dead_letter'?"),
    (task("route: []"), "route", "unknown key", "did you mean 'routes'?"),
    (task("zzz: 1"), "zzz", "unknown key"),
    (task("loop_prevention: {max_hop: 3}"), "loop_prevention.max_hop", "unknown key", "did you mean 'max_hops'?"),
    (task("loop_prevention: {max_hops: 0}"), "loop_prevention.max_hops", "is 0, expected at least 1"),
    (task("loop_prevention: {max_hops: '3'}"), "loop_prevention.max_hops", "is '3', expected a whole number"),
    (task("loop_prevention: on"), "loop_prevention", "is true, expected off"),
    (task("ttl: kep"), "ttl", "is 'kep', expected 'keep' or 'remaining'"),
    (task("ttl: {stamp: PT0S}"), "ttl.stamp", "expected more than PT0S"),
    (task("limits: {edit_time: PT0.001S}"), "limits.edit_time", "is PT0.001S, expected at least PT0.01S"),
    (task("ttl: {stamp: P50D}"), "ttl.stamp", "expected at most 49 days"),
    (TASK.replace("copy", "1copy"), "task", "is '1copy', expected a letter, then letters, digits"),
    (TASK.replace("task: copy\n", ""), "task", "is missing"),
    (task(source="connection: west"), "source", "names no entity, expected one of queue"),
    (task(source="connection: west, queue: a, topic: b"), "source", "names queue and topic, expected one of"),
    (task(source="connection: west, topic: a"), "source", "has only one of topic and subscription"),
    (task(source=f"{QUEUE}, consumer_group: g"), "source", "has consumer_group"),
    (task(source=f"{QUEUE}, sessions: 1"), "source.sessions", "is 1, expected true or false"),
    (task(source=f"{QUEUE}, dead_letter: 2"), "source.dead_letter", "is 2, expected true or false or 'transfer'"),
    (task(source="connection: west, queue: 5"), "source.queue", "expected text"),
    (task(source="connection: west, queue: '%A%'"), "source", "has % in queue, expected the name itself"),
    (task(REJECTS, source=f"{QUEUE}, dead_letter: true, sessions: true"), "source", "has sessions and dead_letter"),
    (task(source=f"{QUEUE}, rule: {{filter: a = 1}}"), "source", "has a rule, expected only for a subscription"),
    (task(source=f"{QUEUE}, dead_letter: true"), "", "has no rejects"),
    (task(source=HUB), "", "has no rejects"),
    (TASK.replace(f"{{{QUEUE}}}", "[west, orders]"), "source", "expected a mapping"),
    (TASK.replace("west", "wets"), "source.connection", "unknown connection 'wets'", "did you mean 'west'?"),
    (
        TASK.replace("east", "nowhere"),
        CONNECTION,
        "unknown connection 'nowhere'",
        "connections.yaml has west, east, hub-west",
    ),
    (TASK.replace("east", "hub-west"), CONNECTION, "'hub-west' is of kind event-hubs, expected service-bus"),
    (TASK.replace("west", "hub-west"), "source.connection", "'hub-west' is of kind event-hubs, expected service-bus"),
    (
        task(REJECTS, source="connection: west, hub: h"),
        "source.connection",
        "'west' is of kind service-bus, expected event-hubs",
    ),
    (TASK[: TASK.index("\n  -")] + " []", "routes", "expected at least one item"),
    (TASK[: TASK.index("\n  -")] + " {}", "routes", "expected a list"),
    (task(target="connection: east"), TARGET, "expected one of queue, topic, hub and address"),
    (task(target=f"{HUB}, queue: orders"), TARGET, "expected one of queue, topic, hub and address"),
    (task(target="connection: east, hub: h"), CONNECTION, "'east' is of kind service-bus, expected event-hubs"),
    (task(target="connection: east, queue: orders, partition: 3"), TARGET, "has a partition, expected only for a hub"),
    (
        task(target=f"{HUB}, partition: keep"),
        "",
        "has `partition: keep`, expected a hub as the source: other messages have no partition",
    ),
    (task(source=f"{QUEUE}, partitions: [0]"), "source", "has partitions, expected only for a hub"),
    (task(REJECTS, source=f"{HUB}, partitions: [0]"), "source", "with a consumer_group other than $Default"),
    (
        task(REJECTS, source=f"{HUB}, consumer_group: g, partitions: []"),
        "source.partitions",
        "expected at least one item",
    ),
    (task(target="connection: west, queue: Orders"), "", "sends to its own source"),
    (task(REJECTS + "lanes: 2", source=HUB), "", "has lanes for a hub"),
    (task("lanes: 2", source=ENVELOPES), "", "has lanes and no sessions"),
    (task(REJECTS + "dispatch: single", source=HUB), "", "has `dispatch: single` for a hub"),
    (task("lanes: 2\ndispatch: single"), "", "has lanes and `dispatch: single`"),
    (task("dispatch: single", source=ENVELOPES), "", "has `dispatch: single` and no sessions"),
    (
        TASK.replace("- target", "- via: binding\n    target") + "dispatch: single",
        "",
        "has `dispatch: single` and `via: binding`",
    ),
    (task(REJECTS + THROUGHPUT + "}", source=HUB), "", "has throughput for a hub"),
    (task(THROUGHPUT + "}", source=ENVELOPES), "", "has throughput and no sessions"),
    (task(THROUGHPUT + "}", source=f"{QUEUE}, sessions: true"), "", "has no throughput.sessions"),
    (task(THROUGHPUT + ", sessions: 3}"), "", "has throughput.sessions, and its source has none"),
    (
        task("throughput: {round_trip: 80 millis}"),
        "throughput.round_trip",
        "expected a duration, such as 30s, 5m or PT0.08S",
    ),
    (task(f"rejects: {{{QUEUE}}}"), "", "sends to its own source"),
    (TASK.replace("- target", "- when: sys.Prio > 5\n    target"), "routes[0].when", "names sys.Prio, expected one of"),
    (task("editors: [{filter: 5}]"), "editors[0].filter", "expected text"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault[1]}: {fault[2]}")
def test_every_fault_is_reported_with_its_place(problems: Any, fault: tuple[str, ...]) -> None:
    text, path, problem, *hint = fault
    (found,) = problems(copy=text)
    assert found[0] == ("tasks/copy.yaml" + (f": {path}" if path else ""))
    assert problem in found[1]
    assert found[2] == "".join(hint)


def test_invalid_rule_is_reported_with_a_mark_below_the_fault(problems: Any) -> None:
    (found,) = problems(copy=TASK.replace("- target", '- when: "priority >> 5"\n    target'))
    assert found[0] == "tasks/copy.yaml: routes[0].when"
    first, line, mark = found[1].split("\n")
    assert first.startswith("rule, line 1, column 11: got >, expected a value")
    assert line.strip() == "priority >> 5"
    assert line[mark.index("^") :] == "> 5"


@pytest.mark.parametrize("key", ["action", "when"])
def test_the_rules_of_all_routes_are_looked_at(problems: Any, key: str) -> None:
    routes = "\n".join(f"  - {key}: 'SET SET'\n    target: {{connection: east, queue: q{n}}}" for n in range(3))
    found = problems(copy=TASK[: TASK.index("  - target")] + routes)
    assert [path for path, _, _ in found] == [f"tasks/copy.yaml: routes[{number}].{key}" for number in range(3)]


def test_invalid_editor_options_are_reported_with_their_place(problems: Any) -> None:
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


def test_unknown_editor_is_reported(problems: Any) -> None:
    found = problems(copy=TASK + "editors: [{fliter: a = 1}, {sort: {}}, {filter: a = 1, sort: {}}, 5, {}]\n")
    assert found == [
        ("tasks/copy.yaml: editors[0]", "unknown editor 'fliter', did you mean 'filter'?", ""),
        ("tasks/copy.yaml: editors[1]", f"unknown editor 'sort', expected one of {', '.join(STEPS)}", ""),
        ("tasks/copy.yaml: editors[2]", "has filter and sort, expected one editor with its options", ""),
        ("tasks/copy.yaml: editors[3]", "has no editor, expected one editor with its options", ""),
        ("tasks/copy.yaml: editors[4]", "has no editor, expected one editor with its options", ""),
    ]


def test_invalid_schema_is_reported_with_the_other_problems(folder: Path, problems: Any) -> None:
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


def test_editor_options_are_reported_by_their_path(problems: Any) -> None:
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
