"""A folder of task files with the problems that are found in it, and tasks with the findings of a review."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.entities import entities_of
from shared.errors import ConfigError
from shared.review import review
from shared.tasks.files import load
from tests.unit.tasks import task_files

ROOT = Path(__file__).parents[3]


CONNECTIONS = """\
west: {kind: service-bus, setting: WEST}
east: {kind: service-bus, setting: EAST}
north: {kind: service-bus, setting: NORTH}
hubs: {kind: event-hubs, setting: HUBS, site: west}
"""


MARKED = '{filter: "replication IS NULL", action: "SET replication = 1"}'


def task(
    name: str, source: str, *targets: str, rejects: str = "{connection: north, queue: rejected}", more: str = ""
) -> str:
    routes = "\n".join(f"  - {target}" for target in targets)
    return f"task: {name}\nsource: {source}\nroutes:\n{routes}\nrejects: {rejects}\n{more}"


def to(site: str, entity: str = "queue: orders", more: str = "") -> str:
    return f"target: {{connection: {site}, {entity}}}{more}"


def subscribed(site: str, subscription: str, rule: str = MARKED) -> str:
    rule = f", rule: {rule}" if rule else ""
    return f"{{connection: {site}, topic: events, subscription: {subscription}{rule}}}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return task_files.written(tmp_path, "")


@pytest.fixture
def problems(folder: Path) -> Any:
    """Return the problems of a folder of files, each as path in the folder, what is wrong, and the hint."""

    def problems_of(**files: str) -> list[tuple[str, str, str]]:
        for name, content in files.items():
            path = folder / ("connections.yaml" if name == "connections" else f"tasks/{name}.yaml")
            path.write_text(content, encoding="utf-8")
        with pytest.raises(ConfigError) as caught:
            load(folder)
        return [
            (problem.path.removeprefix(f"{folder}/"), problem.problem.replace(f"{folder}/", ""), problem.hint)
            for problem in caught.value.problems
        ]

    return problems_of


@pytest.fixture
def found(tmp_path: Path) -> Any:
    """Return the names and paths of what a review finds in tasks and entities."""

    def found_in(*tasks: str, **entities: dict[str, Any]) -> list[tuple[str, str]]:
        task_files.written(tmp_path, "---\n".join(tasks), CONNECTIONS)
        for site, namespace in entities.items():
            document = {"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", **namespace}]}}
            tmp_path.joinpath(f"{site}.json").write_text(json.dumps(document), encoding="utf-8")
        configuration = load(tmp_path)
        files = [str(tmp_path / f"{site}.json") for site in entities]
        findings = review(configuration, entities_of(files, configuration.connections))
        return [(finding.check.name, finding.path.removeprefix(f"{tmp_path}/tasks/all.yaml: ")) for finding in findings]

    return found_in


def names(found: list[tuple[str, str]]) -> list[str]:
    return [name for name, _ in found]
