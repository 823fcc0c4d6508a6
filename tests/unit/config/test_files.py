from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from shared.config.files import load
from shared.config.models import LoopPrevention, StampedLife
from shared.config.steps import STEPS
from shared.errors import ConfigError

CONNECTIONS = """\
west: {kind: service-bus, setting: WEST}
east: {kind: service-bus, setting: EAST, site: e}
hub-west: {kind: event-hubs, setting: HUB_WEST}
"""
TASK = """\
task: copy
source: {connection: west, queue: orders}
routes:
  - target: {connection: east, queue: orders}
"""
REJECTS = "rejects: {connection: west, queue: rejected}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.joinpath("tasks").mkdir()
    tmp_path.joinpath("connections.yaml").write_text(CONNECTIONS, encoding="utf-8")
    return tmp_path


@pytest.fixture
def problems(folder: Path) -> Callable[..., Any]:
    """Return the problems of a folder of files, each as path in the folder, what is wrong, and the hint."""

    def problems_of(**files: str) -> list[tuple[str, str, str]]:
        for name, content in files.items():
            path = folder / ("connections.yaml" if name == "connections" else f"tasks/{name}.yaml")
            path.write_text(content, encoding="utf-8")
        with pytest.raises(ConfigError) as caught:
            load(folder)
        return [
            (each.path.removeprefix(f"{folder}/"), each.problem.replace(f"{folder}/", ""), each.hint)
            for each in caught.value.problems
        ]

    return problems_of


def test_a_folder_is_read(folder: Path) -> None:
    folder.joinpath("tasks/a.yaml").write_text(TASK + "---\n" + TASK.replace("copy", "second"), encoding="utf-8")
    folder.joinpath("tasks/b.yml").write_text(
        """\
task: hub
source: {connection: hub-west, hub: telemetry, consumer_group: busway}
editors:
  - filter: "kind = 'temperature'"
routes:
  - when: "priority > 5"
    action: "SET sys.TimeToLive = '0:2:0'"
    target: {connection: east, topic: express}
  - target: {connection: east, queue: orders}
rejects: {connection: west, queue: rejected}
ttl: {stamp: PT2M}
loop_prevention: off
""",
        encoding="utf-8",
    )
    folder.joinpath("tasks/README.md").write_text("no task", encoding="utf-8")
    configuration = load(folder)
    assert [task.task for task in configuration.tasks] == ["copy", "second", "hub"]
    assert [configuration.site(alias) for alias in configuration.connections] == ["west", "e", "hub-west"]
    copy, _, hub = configuration.tasks
    assert (copy.ttl, copy.loop_prevention, copy.rejects, copy.editors) == ("keep", LoopPrevention(), None, ())
    assert hub.ttl == StampedLife(stamp=timedelta(minutes=2))
    assert hub.loop_prevention is False
    assert [route.target.entity for route in hub.routes] == ["express", "orders"]


HUB_TASK = """\
task: {task}
source: {{connection: hub-west, hub: {hub}{group}}}
routes: [{{target: {{connection: east, queue: orders}}}}]
rejects: {{connection: west, queue: rejected}}
"""


def test_two_tasks_of_one_consumer_group_are_reported(problems: Callable[..., Any]) -> None:
    first = HUB_TASK.format(task="first", hub="h", group="")
    ((path, problem, hint),) = problems(
        a=first, b=HUB_TASK.format(task="second", hub="H", group=", consumer_group: $default")
    )
    assert path == "tasks/b.yaml: source.consumer_group"
    assert problem == "'first' already reads H with $default, and each would receive only some of the events"
    assert hint == "give each task its own consumer group"


def test_two_tasks_of_one_hub_need_separate_consumer_groups(folder: Path) -> None:
    texts = [HUB_TASK.format(task=name, hub="h", group=f", consumer_group: {name}") for name in ("first", "second")]
    folder.joinpath("tasks/a.yaml").write_text("---\n".join(texts), encoding="utf-8")
    assert [task.source.consumer_group for task in load(folder).tasks] == ["first", "second"]


def test_hubs_and_partitions_are_read(folder: Path) -> None:
    task = """\
task: hubs
source: {connection: hub-west, hub: telemetry, consumer_group: busway, partitions: [0, 3]}
routes:
  - when: "a = 1"
    target: {connection: hub-west, hub: other, partition: keep}
  - target: {connection: hub-west, hub: other, partition: 2}
rejects: {connection: hub-west, hub: rejected}
"""
    folder.joinpath("tasks/a.yaml").write_text(task, encoding="utf-8")
    (read,) = load(folder).tasks
    assert read.source.partitions == (0, 3)
    assert [(each.entity, each.partition) for each in read.targets()] == [
        ("other", "keep"),
        ("other", 2),
        ("rejected", None),
    ]


def test_the_configuration_of_the_repository_is_read() -> None:
    assert load(Path(__file__).parents[3] / "config").tasks


@pytest.mark.parametrize(
    ("source", "entity"),
    [
        ("queue: q", "q"),
        ("queue: q, dead_letter: true", "q/$DeadLetterQueue"),
        ("queue: q, dead_letter: transfer", "q/$Transfer/$DeadLetterQueue"),
        ("topic: t, subscription: s", "t/Subscriptions/s"),
        ("topic: t, subscription: s, dead_letter: true", "t/Subscriptions/s/$DeadLetterQueue"),
        ("topic: t, subscription: s, dead_letter: transfer", "t/Subscriptions/s/$Transfer/$DeadLetterQueue"),
    ],
)
def test_the_path_of_a_source(folder: Path, source: str, entity: str) -> None:
    task = TASK.replace("queue: orders}", source + "}", 1) + REJECTS
    folder.joinpath("tasks/a.yaml").write_text(task, encoding="utf-8")
    assert load(folder).tasks[0].source.entity == entity


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
        "Input should be greater than or equal to 1",
        "",
    ),
    (
        "task: copy",
        "task: copy\nloop_prevention: {max_hops: '3'}",
        "loop_prevention.max_hops",
        "Input should be a valid integer",
        "",
    ),
    ("task: copy", "task: copy\nloop_prevention: on", "loop_prevention", "Input should be False", ""),
    ("task: copy", "task: copy\nttl: kep", "ttl", "Input should be 'keep' or 'remaining'", ""),
    ("task: copy", "task: copy\nttl: {stamp: PT0S}", "ttl.stamp", "Input should be greater than 0 seconds", ""),
    ("task: copy", "task: copy\nttl: {stamp: P50D}", "ttl.stamp", "less than or equal to", ""),
    ("task: copy", "task: 1copy", "task", "String should match pattern", ""),
    ("task: copy\n", "", "task", "is missing", ""),
    (SOURCE, "}\nroutes", "source", "names no entity, expected one of queue", ""),
    (SOURCE, "queue: a, topic: b}\nroutes", "source", "names queue and topic, expected one of", ""),
    (SOURCE, "topic: a}\nroutes", "source", "has only one of topic and subscription", ""),
    (SOURCE, "queue: a, consumer_group: g}\nroutes", "source", "has consumer_group", ""),
    (SOURCE, "queue: a, sessions: 1}\nroutes", "source.sessions", "Input should be a valid boolean", ""),
    (SOURCE, "queue: 5}\nroutes", "source.queue", "expected text", ""),
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
        "expected one of queue, topic and hub",
        "",
    ),
    (
        "target: {connection: east, queue: orders}",
        "target: {connection: hub-west, hub: h, queue: orders}",
        "routes[0].target",
        "expected one of queue, topic and hub",
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
        "target: {connection: west, queue: orders}",
        "",
        "sends to its own source",
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
        ("tasks/copy.yaml: editors[0].validate", "expected a mapping"),
        (
            "tasks/copy.yaml: editors[1].validate",
            "checks nothing, expected schema, avro, required_properties, content_type or max_size",
        ),
        ("tasks/copy.yaml: editors[2].validate.max_size", "Input should be greater than or equal to 0"),
        ("tasks/copy.yaml: editors[2].validate.shcema", "unknown key"),
        (
            "tasks/copy.yaml: editors[3].filter",
            "rule, line 1, column 4: got >, expected a value: a property, a constant, a parameter or a function",
        ),
    ]


def test_all_problems_of_all_files_are_reported_together(problems: Callable[..., Any]) -> None:
    found = problems(
        connections=CONNECTIONS + "south: {kind: kafka, setting: SOUTH}\nnorth: {kind: service-bus}\n",
        a=TASK.replace("west", "wets") + "---\n" + TASK.replace("task: copy", "task: other\nttl: kep"),
        b=TASK.replace("target:", "targets:") + "rejects: {connection: esat, queue: q}\n",
        c="task: [",
        d="",
    )
    assert [path for path, _, _ in found] == [
        "connections.yaml: south: kind",
        "connections.yaml: north: setting",
        "tasks/a.yaml: document 1: source.connection",
        "tasks/a.yaml: document 2: ttl",
        "tasks/b.yaml: rejects.connection",
        "tasks/b.yaml: routes[0].target",
        "tasks/b.yaml: routes[0].targets",
        "tasks/c.yaml",
        "tasks/d.yaml",
    ]


def test_error_has_one_line_per_problem(folder: Path) -> None:
    folder.joinpath("tasks/a.yaml").write_text(TASK.replace("west", "wets") + "zzz: 1\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load(folder)
    assert str(caught.value).splitlines() == [
        f"{folder}/tasks/a.yaml: source.connection: unknown connection 'wets' (did you mean 'west'?)",
        f"{folder}/tasks/a.yaml: zzz: unknown key",
    ]


def test_invalid_connection_is_reported_once_and_not_at_its_uses(problems: Callable[..., Any]) -> None:
    found = problems(connections=CONNECTIONS.replace("site: e", "sites: e"), copy=TASK)
    assert found == [("connections.yaml: east: sites", "unknown key", "did you mean 'site'?")]


@pytest.mark.parametrize("alias", ["no", "5", "'a;b'", "''"])
def test_alias_is_a_name_that_fits_into_a_path(problems: Callable[..., Any], alias: str) -> None:
    (found,) = problems(connections=CONNECTIONS + f"{alias}: {{kind: service-bus, setting: S}}\n", copy=TASK)
    assert "is not a valid alias" in found[1]


@pytest.mark.parametrize(
    ("connection", "path", "problem"),
    [
        ("{kind: service-bus, setting: WEST, site: 'a;b'}", "south: site", "String should match pattern"),
        ("{kind: service-bus, setting: 'Endpoint=sb://x'}", "south: setting", "String should match pattern"),
        ("text", "south", "expected a mapping"),
        ("", "south", "expected a mapping"),
    ],
)
def test_connections_are_looked_at(problems: Callable[..., Any], connection: str, path: str, problem: str) -> None:
    (found,) = problems(connections=CONNECTIONS + f"south: {connection}\n", copy=TASK)
    assert found[0] == f"connections.yaml: {path}"
    assert problem in found[1]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("task: a\ntask: b\n", "duplicate key 'task'"),
        ("source: {queue: a, queue: b}\n", "duplicate key 'queue'"),
        ("task: [", "is not valid YAML"),
        ("task: !!python/object:os.system x", "is not valid YAML"),
        ("? [a]\n: b\n", "is not valid YAML"),
        ("", "the file is empty"),
        ("# only a comment\n---\n", "the file is empty"),
        ("- 1\n", "expected a mapping"),
    ],
)
def test_file_that_is_not_a_task_is_reported(problems: Callable[..., Any], content: str, problem: str) -> None:
    (found,) = problems(copy=content)
    assert found[0] == "tasks/copy.yaml"
    assert problem in found[1]


NESTED = ["[" * 3000, "a: " + "[" * 3000 + "]" * 3000, "".join(" " * level + "a:\n" for level in range(3000))]


@pytest.mark.parametrize("content", NESTED, ids=["open", "closed", "block"])
def test_file_that_is_nested_too_deeply_is_reported(problems: Callable[..., Any], content: str) -> None:
    (found,) = problems(copy=content)
    assert found[0] == "tasks/copy.yaml"
    assert "is nested too deeply" in found[1]


def test_file_that_is_not_text_is_reported(folder: Path) -> None:
    folder.joinpath("tasks/a.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"a\.yaml: "):
        load(folder)


def test_duplicate_task_is_reported(problems: Callable[..., Any]) -> None:
    found = problems(a=TASK, b=TASK.replace("copy", "COPY"))
    assert found == [("tasks/b.yaml: task", "'COPY' is already the name of a task in tasks/a.yaml", "")]


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    assert [(problem.path, problem.problem) for problem in caught.value.problems] == [
        (f"{tmp_path}/connections.yaml", "the file is missing"),
        (f"{tmp_path}/tasks", "there are no task files"),
    ]
