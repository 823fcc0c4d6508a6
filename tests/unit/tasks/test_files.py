"""A configuration folder: its files, its connections, and files that cannot be read."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from shared.errors import ConfigError
from shared.tasks.files import load
from shared.tasks.options import LoopPrevention, StampedLife
from tests.unit.tasks.task_files import CONNECTIONS, REJECTS, TASK


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
    assert [branch.target.entity for branch in hub.branches()] == ["express", "orders"]


HUB_TASK = """\
task: {task}
source: {{connection: hub-west, hub: {hub}{group}}}
routes: [{{target: {{connection: east, queue: orders}}}}]
rejects: {{connection: west, queue: rejected}}
"""


def test_two_tasks_of_one_consumer_group_are_reported(problems: Any) -> None:
    first = HUB_TASK.format(task="first", hub="h", group="")
    second = HUB_TASK.format(task="second", hub="H", group=", consumer_group: $default")
    ((path, problem, hint),) = problems(a=first, b=second)
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
    targets = [(target.entity, target.partition) for target in read.targets()]
    assert targets == [("other", "keep"), ("other", 2), ("rejected", None)]


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


def test_all_problems_of_all_files_are_reported_together(problems: Any) -> None:
    found = problems(
        connections=CONNECTIONS + "south: {kind: mqtt, setting: SOUTH}\nnorth: {kind: service-bus}\n",
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
        "tasks/c.yaml: line 2, column 1",
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


def test_invalid_connection_is_reported_once_and_not_at_its_uses(problems: Any) -> None:
    found = problems(connections=CONNECTIONS.replace("site: e", "sites: e"), copy=TASK)
    assert found == [("connections.yaml: east: sites", "unknown key", "did you mean 'site'?")]


@pytest.mark.parametrize("alias", ["no", "5", "'a;b'", "''"])
def test_alias_is_a_name_that_fits_into_a_path(problems: Any, alias: str) -> None:
    (found,) = problems(connections=CONNECTIONS + f"{alias}: {{kind: service-bus, setting: S}}\n", copy=TASK)
    assert "is not a valid alias" in found[1]


@pytest.mark.parametrize(
    ("connection", "path", "problem"),
    [
        ("{kind: service-bus, setting: WEST, site: 'a;b'}", "south: site", "is 'a;b', expected letters, digits, . -"),
        ("{kind: service-bus, setting: 'Endpoint=sb://x'}", "south: setting", "is a connection string, expected"),
        ("text", "south", "expected a mapping"),
        ("", "south", "expected a mapping"),
    ],
)
def test_connections_are_looked_at(problems: Any, connection: str, path: str, problem: str) -> None:
    (found,) = problems(connections=CONNECTIONS + f"south: {connection}\n", copy=TASK)
    assert found[0] == f"connections.yaml: {path}"
    assert problem in found[1]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("task: a\ntask: b\n", "duplicate key 'task'"),
        ("source: {queue: a, queue: b}\n", "duplicate key 'queue'"),
        ("task: [", "lacks a value here"),
        ("task: !!python/object:os.system x", "begins with !"),
        ("", "the file is empty"),
        ("# only a comment\n---\n", "the file is empty"),
        ("- 1\n", "expected a mapping"),
    ],
)
def test_file_that_is_not_a_task_is_reported(problems: Any, content: str, problem: str) -> None:
    (found,) = problems(copy=content)
    assert found[0].partition(": line ")[0] == "tasks/copy.yaml"
    assert problem in found[1]


NESTED = ["[" * 600, "a: " + "[" * 600 + "]" * 600, "".join(" " * level + "a:\n" for level in range(600))]


@pytest.mark.parametrize("content", NESTED, ids=["open", "closed", "block"])
def test_file_that_is_nested_too_deeply_is_reported(problems: Any, content: str) -> None:
    (found,) = problems(copy=content)
    assert found[0] == "tasks/copy.yaml"
    assert "is nested too deeply" in found[1]


def test_file_that_is_not_text_is_reported(folder: Path) -> None:
    folder.joinpath("tasks/a.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"a\.yaml: "):
        load(folder)


def test_duplicate_task_is_reported(problems: Any) -> None:
    found = problems(a=TASK, b=TASK.replace("copy", "COPY"))
    assert found == [("tasks/b.yaml: task", "'COPY' is already the name of a task in tasks/a.yaml", "")]


def test_lane_with_the_name_of_another_task_is_reported(problems: Any) -> None:
    found = problems(a=TASK + "lanes: 3\n", b=TASK.replace("task: copy", "task: Copy-Lane-3"))
    assert found == [("tasks/b.yaml: task", "'Copy-Lane-3' is already the name of a task in tasks/a.yaml", "")]


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    assert [(problem.path, problem.problem) for problem in caught.value.problems] == [
        (f"{tmp_path}/connections.yaml", "the file is missing"),
        (f"{tmp_path}/tasks", "there are no task files"),
    ]
