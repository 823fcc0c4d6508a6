"""journal.yaml and taps: what is accepted, and the problems reported for the rest."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from shared.assembly.journals import Journals, actions_of
from shared.clock import ManualClock
from shared.errors import ConfigError
from shared.journal.blob import BlobSink
from shared.journal.event_hub import EventHubSink
from shared.journal.log import LogJournal
from shared.journal.task import TaskJournal
from shared.tasks.files import load
from tests.unit.tasks.task_files import written

CONNECTIONS = """
west: {kind: service-bus, setting: WEST}
east: {kind: service-bus, setting: EAST}
hub: {kind: event-hubs, setting: HUB}
"""
TASK = """
task: copy
source:
  connection: west
  topic: orders
  subscription: replication
  rule: {filter: "replication IS NULL", action: "SET replication = 1"}
routes: [{action: "SET sys.Label = 'x'", target: {connection: east, topic: orders}}]
"""
BLOB = "blob: {setting: JOURNAL}"
HUB = "event_hub: {connection: hub, hub: j}"
STORAGE = "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=YWJj;EndpointSuffix=core.windows.net"


def tap(source: str, **options: str) -> str:
    text = ", ".join(f"{name}: {value}" for name, value in ({"of": "copy", "side": "target"} | options).items())
    return f"task: watch\nsource: {source}\ntap: {{{text}}}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    def write(*documents: str, journal: str | None = BLOB) -> Path:
        return written(tmp_path, "\n---\n".join(documents), CONNECTIONS, journal or "")

    return write


def problems(folder: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(folder)
    return [f"{problem.path.rpartition('/')[2]}: {problem.problem}" for problem in caught.value.problems]


WEST_JOURNAL = "{connection: west, topic: orders, subscription: journal, rule: {filter: 'replication is null'}}"
EAST_JOURNAL = "{connection: east, topic: orders, subscription: journal}"


def test_a_tap_of_the_target_and_one_of_the_source_are_accepted(folder: Any) -> None:
    west = tap(WEST_JOURNAL, side="source").replace("watch", "watch-west")
    configuration = load(folder(TASK, tap(EAST_JOURNAL), west))
    assert [task.task for task in configuration.tasks] == ["copy"]
    assert [each.task for each in configuration.taps] == ["watch", "watch-west"]


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (tap(EAST_JOURNAL, of="other"), "tap.of: unknown task 'other'"),
        (tap("{connection: west, topic: orders, subscription: journal}"), "source: is not what 'copy' sends to"),
        (tap(EAST_JOURNAL, side="source"), "source: is not what 'copy' receives from"),
        (
            tap("{connection: west, topic: orders, subscription: replication}", side="source"),
            "source: drains the entity of 'copy', and each would receive only some of",
        ),
        (
            tap("{connection: west, topic: orders, subscription: journal}", side="source"),
            "source.rule: its rule selects 1 = 1, 'copy' selects replication IS NULL; a message",
        ),
        (
            tap("{connection: east, queue: orders}"),
            "drains a queue and would take messages from its consumer, expected tap.peek",
        ),
        (
            tap("{connection: hub, hub: h}", peek='"* * * * * *"'),
            "has tap.peek for a hub, expected a separate consumer group instead",
        ),
        (tap(EAST_JOURNAL) + "routes: []\n", "routes: unknown key"),
        (tap("{connection: nowhere, queue: q}"), "source.connection: unknown connection"),
        (tap(EAST_JOURNAL).replace("watch", "copy"), "task: 'copy' is already the name of a task in"),
    ],
)
def test_invalid_tap_is_reported(folder: Any, document: str, expected: str) -> None:
    assert any(each.startswith(f"all.yaml: document 2: {expected}") for each in problems(folder(TASK, document)))


def test_peek_at_the_source_does_not_compete_with_the_task(folder: Any) -> None:
    source = "{connection: west, topic: orders, subscription: replication}"
    configuration = load(folder(TASK, tap(source, side="source", peek='"0 * * * * *"')))
    assert configuration.taps[0].tap.peek == "0 * * * * *"


@pytest.mark.parametrize(
    ("journal", "expected"),
    [
        ("blob: {setting: JOURNAL}\nevent_hub: {connection: hub, hub: j}", "journal.yaml: expected one of blob and"),
        ("blob: {setting: JOURNAL, container: No_Name}", "journal.yaml: blob.container: "),
        ("event_hub: {connection: west, hub: j}", "journal.yaml: event_hub.connection: 'west' is of kind service-bus"),
        ("event_hub: {connection: gone, hub: j}", "journal.yaml: event_hub.connection: unknown connection 'gone'"),
        ("blobs: {}", "journal.yaml: blobs: unknown key"),
    ],
)
def test_invalid_journal_is_reported(folder: Any, journal: str, expected: str) -> None:
    assert any(each.startswith(expected) for each in problems(folder(TASK, journal=journal)))


@pytest.mark.parametrize(
    ("documents", "journal", "expected"),
    [
        ([TASK + "dispatch: single\n"], HUB, "all.yaml: dispatch: is `single`, but the journal is in an event hub"),
        ([TASK, tap(EAST_JOURNAL)], None, "all.yaml: document 2: there is no journal to write to"),
        (
            [TASK, tap(EAST_JOURNAL, peek='"0 * * * * *"')],
            HUB,
            "all.yaml: document 2: tap.peek: peeks, but a journal in an event hub",
        ),
    ],
)
def test_what_the_journal_cannot_hold_is_reported(
    folder: Any, documents: list[str], journal: str | None, expected: str
) -> None:
    (problem,) = problems(folder(*documents, journal=journal))
    assert problem.startswith(expected)


def test_single_dispatch_without_a_journal_may_stand_beside_one_in_a_hub(folder: Any) -> None:
    (task,) = load(folder(TASK + "dispatch: single\njournal: off\n", journal=HUB)).tasks
    assert task.dispatch == "single"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "the app setting is missing"),
        ({"JOURNAL": "nonsense"}, "the app setting is not a connection string of a storage account"),
    ],
)
def test_the_setting_of_the_journal_is_checked_at_the_start(
    folder: Any, settings: dict[str, str], expected: str
) -> None:
    configuration = load(folder(TASK))
    with pytest.raises(ConfigError) as caught:
        Journals(configuration, settings)
    assert [(problem.path, problem.problem) for problem in caught.value.problems] == [
        ("journal.yaml: blob: app setting JOURNAL", expected)
    ]


def test_each_task_has_its_configured_journal(folder: Any) -> None:
    others = [TASK.replace("task: copy", f"task: {name}\njournal: {word}") for name, word in [("b", "best_effort")]]
    configuration = load(folder(TASK, *others, TASK.replace("task: copy", "task: c\njournal: off")))
    journals = Journals(configuration, {"JOURNAL": STORAGE})
    required, best_effort, off = (journals.of(file) for file in configuration.tasks)
    assert isinstance(required, TaskJournal)
    assert isinstance(best_effort, TaskJournal)
    assert (required._is_required, best_effort._is_required) == (True, False)
    assert required._sink is best_effort._sink
    assert isinstance(required._sink, BlobSink)
    assert type(off) is LogJournal


def test_without_journal_yaml_the_log_is_the_journal(folder: Any) -> None:
    configuration = load(folder(TASK, journal=None))
    journals = Journals(configuration, {})
    assert type(journals.of(configuration.tasks[0])) is LogJournal
    assert journals.binding() is None


def test_the_actions_of_rule_and_routes_are_left_out_of_digests(folder: Any) -> None:
    (file,) = load(folder(TASK)).tasks
    assert [str(action) for action in actions_of(file)] == ["SET replication = 1", "SET sys.Label = 'x'"]


def test_functions_of_tasks_and_taps_are_bound_to_the_journals_hub(folder: Any) -> None:
    configuration = load(folder(TASK, tap(EAST_JOURNAL), journal=HUB))
    journals = Journals(configuration, {"HUB": "x"})
    binding = journals.binding()
    assert binding is not None
    assert isinstance(binding.sink, EventHubSink)
    assert (binding.hub, binding.setting) == ("j", "HUB")
    # A process that takes the place of another one counts its batches from 1 as well.
    restarted = Journals(configuration, {"HUB": "x"}, ManualClock(datetime(2030, 1, 1, tzinfo=UTC))).binding()
    assert restarted is not None
    assert restarted.sink.instance != binding.sink.instance
