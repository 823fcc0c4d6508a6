"""Routes with several targets: what may be written, and that everything that reads routes sees each of them."""

from pathlib import Path
from typing import Any

import pytest

from cli.check_folder import check_folder
from cli.smoke.smoke_test import routes_named
from cli.topology.plan import load_needs
from shared.assembly.pipelines import assemble
from shared.editors.batch import Batch
from shared.editors.deduplicate import Deduplicate
from shared.errors import ConfigError
from shared.tasks.files import Configuration, load
from shared.tasks.heartbeats import heartbeat_targets
from shared.tasks.models import TaskFile
from tests.fakes import OutputThatAccepts
from tests.messages import message
from tests.unit.tasks import task_files
from tests.unit.tasks.conftest import names, task, to

CONNECTIONS = """\
west: {kind: service-bus, setting: WEST}
east: {kind: service-bus, setting: EAST}
north: {kind: service-bus, setting: NORTH}
hubs: {kind: event-hubs, setting: HUBS, site: east}
store: {kind: storage-queue, setting: STORE}
"""
SOURCE = "{connection: west, queue: orders}"
ONE = "target: [{connection: east, queue: a}"
THREE = "[{connection: east, queue: orders}, {connection: north, topic: news}, {connection: store, queue: archive}]"


def written(folder: Path, *routes: str, source: str = SOURCE, more: str = "") -> Configuration:
    text = task("copy", source, *routes, rejects="{connection: west, queue: rejected}", more=more)
    return load(task_files.written(folder, text, CONNECTIONS))


def paths(file: TaskFile) -> list[str]:
    return [branch.path for branch in file.branches()]


def test_a_route_has_one_target_or_a_list(tmp_path: Path) -> None:
    (file,) = written(tmp_path, f"when: a = 1\n    target: {THREE}", to("east")).tasks
    assert paths(file) == [*(f"routes[0].target[{number}]" for number in range(3)), "routes[1].target"]
    assert [target.entity for target in file.targets()] == ["orders", "news", "archive", "orders", "rejected"]
    (single,) = written(tmp_path, "target: [{connection: east, queue: orders}]").tasks
    assert paths(single) == ["routes[0].target[0]"]


@pytest.mark.parametrize(
    ("route", "expected"),
    [
        ("target: []", "routes[0].target: expected at least one item"),
        ("target: orders", "routes[0].target: is 'orders', expected a mapping"),
        ("target: {connection: east}", "routes[0].target: expected one of queue, topic, hub and address"),
        (ONE + ", {connection: east}]", "routes[0].target[1]: expected one of queue, topic, hub and address"),
        (ONE + ", b]", "routes[0].target[1]: is 'b', expected a mapping"),
        (ONE + ", {connection: moon, queue: a}]", "routes[0].target[1].connection: unknown connection 'moon'"),
        (ONE + ", {connection: east, queu: a}]", "routes[0].target[1].queu: unknown key"),
        (ONE + ", {connection: east, queue: A}]", "routes[0]: names A of east twice, expected different targets"),
        (
            ONE + ", {connection: hubs, hub: A}]",
            "routes[0].target[1]: east/A is the name of two targets of the route, by east and hubs",
        ),
        (ONE + ", {connection: west, queue: orders}]", "sends to its own source, expected another entity"),
        (
            ONE + ", {connection: east, queue: b}]\n    via: binding",
            "routes[0]: has several targets and `via: binding`, expected one",
        ),
        (
            "target: [{connection: store, queue: abc}, {connection: east, queue: b}]\n    body_only: true",
            "routes[0].target[1]: has body_only, expected only with `via: binding`",
        ),
    ],
)
def test_a_list_that_means_nothing_is_a_problem_at_its_place(tmp_path: Path, route: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        written(tmp_path, route)
    assert expected in str(caught.value)


@pytest.mark.parametrize("editor", [Batch, Deduplicate])
def test_an_editor_that_joins_messages_needs_one_target(tmp_path: Path, editor: type[Batch | Deduplicate]) -> None:
    assert editor.joins
    options = "batch: {as: json-array}" if editor is Batch else "deduplicate: {window: PT1H, store: memory}"
    with pytest.raises(ConfigError, match=f"several targets and the editor {editor.name}, which joins messages"):
        written(tmp_path, f"target: {THREE}", more=f"editors: [{{{options}}}]")


def test_the_line_gets_all_targets_of_the_first_route_that_takes_a_message(tmp_path: Path) -> None:
    configuration = written(tmp_path, f"target: {THREE}")
    (line,) = assemble(configuration, dict.fromkeys(configuration.connections, OutputThatAccepts()))
    assert [str(target) for target in line.router.route(message(1))] == ["east/orders", "north/news", "store/archive"]


def test_plan_needs_every_target_and_check_shows_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, f"target: {THREE.replace('store, queue', 'east, queue')}")
    needs = load_needs(tmp_path)[1]
    assert {str(needed.name) for needed in needs.namespaces["EAST"].values()} == {"queue orders", "queue archive"}
    assert {str(needed.name) for needed in needs.namespaces["NORTH"].values()} == {"topic news"}
    monkeypatch.setenv("COLUMNS", "200")
    assert check_folder(tmp_path, [], strict=False)
    assert "→ east/orders, north/news, east/archive" in capsys.readouterr().out


def test_each_target_has_its_heartbeats_and_its_number_in_a_smoke_test(tmp_path: Path) -> None:
    configuration = written(tmp_path, f"target: {THREE}", to("east"), more="heartbeat: {every: PT1M, visible: true}")
    (file,) = configuration.tasks
    assert [target.entity for target in heartbeat_targets(file)] == ["orders", "news", "archive", "orders"]
    assert routes_named(["copy"], configuration) == {"copy": (file, [0, 1, 2, 3])}
    with pytest.raises(ConfigError, match="copy:0 to copy:3"):
        routes_named(["copy:4"], configuration)


def test_a_review_judges_each_target_at_its_place(found: Any) -> None:
    several = f"target: [{to('east')[8:]}, {to('north')[8:]}]"
    queues = {"Queues": [{"Name": "orders", "Properties": {"RequiresSession": True}}]}
    result = found(task("copy", SOURCE, several), east=queues, north={"Queues": [{"Name": "other"}]})
    assert ("session-id-missing", "routes[0].target[0]") in result
    assert ("no-duplicate-detection", "routes[0].target[0]") in result
    assert ("entity-missing", "routes[0].target[1]") in result


def test_a_loop_through_the_second_target_is_found(found: Any) -> None:
    several = f"target: [{to('east')[8:]}, {to('north')[8:]}]"
    back = task("back", "{connection: north, queue: orders}", to("west"), more="loop_prevention: off\n")
    assert "endless-loop" in names(found(task("copy", SOURCE, several, more="loop_prevention: off\n"), back))


def test_rejects_with_duplicate_detection_lose_what_two_targets_refuse(found: Any, tmp_path: Path) -> None:
    rejected = {"Name": "rejected", "Properties": {"RequiresDuplicateDetection": True}}
    assert "rejects-detect-duplicates" in names(found(task("copy", SOURCE, to("east")), north={"Queues": [rejected]}))
    folder = tmp_path / "plan"
    folder.mkdir()
    written(folder, f"target: {THREE}")
    needed = {str(needed.name): needed.needs for needed in load_needs(folder)[1].namespaces["WEST"].values()}
    assert "requires_duplicate_detection" not in needed["queue rejected"]
