"""The reference is what its generator makes, and its schemas hold for the files that we write."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from cli.commands.schema import FILES, text
from cli.project.project import write_project
from shared.tasks.steps import STEPS
from tools.reference.__main__ import ROOT, outdated
from tools.reference.editor_pages import CASES, GROUPS, case_of


class _Yaml12(yaml.SafeLoader):
    """YAML 1.2, which text editors read: only `true` and `false` are booleans."""


_Yaml12.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Yaml12.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^(true|false)$"), list("tf"))


def test_the_reference_is_up_to_date() -> None:
    assert [str(path) for path in outdated()] == [], "run: make reference"


def test_every_editor_has_a_golden_case_and_a_group() -> None:
    assert [verb for verb in STEPS if not case_of(verb).exists()] == []
    assert sorted(verb for group in GROUPS.values() for verb in group) == sorted(STEPS)


def _keys(what: str) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    schema = json.loads(text(what))
    models = schema.get("$defs", {})
    for name, model in {**models, what: schema}.items():
        for key, option in model.get("properties", {}).items():
            # An editor's only key has the words of the editor, and a constant says itself what it is.
            if not name.endswith("Step") and "const" not in option:
                yield f"{name}.{key}", option, models.get(option.get("$ref", "").rsplit("/", 1)[-1], {})


@pytest.mark.parametrize("what", FILES)
def test_every_key_of_a_file_has_a_meaning(what: str) -> None:
    assert [
        name for name, option, model in _keys(what) if not option.get("description", model.get("description"))
    ] == []


def _problems(path: Path) -> list[str]:
    """Return what a text editor would underline in a file, by the schema that its first line names."""
    lines = path.read_text(encoding="utf-8")
    found = re.match(r"# yaml-language-server: \$schema=(\S+)\n", lines)
    if found is None:
        return [f"{path}: names no schema"]
    validator = Draft202012Validator(json.loads((path.parent / found[1]).read_text(encoding="utf-8")))
    documents = [document for document in yaml.load_all(lines, _Yaml12) if document is not None]
    return [
        f"{path}: {error.json_path} {error.message}"
        for document in documents
        for error in validator.iter_errors(document)
    ]


def test_every_file_in_config_is_valid_by_the_schema_that_it_names() -> None:
    files = sorted((ROOT / "config").rglob("*.yaml"))
    assert len(files) > 40
    assert [problem for path in files for problem in _problems(path)] == []


def test_the_task_of_every_golden_case_is_valid_by_the_schema() -> None:
    validator = Draft202012Validator(json.loads(text("task")))
    cases = [yaml.load(path.read_text(encoding="utf-8"), _Yaml12) for path in sorted(CASES.glob("*.yaml"))]  # noqa: S506 - a safe one
    tasks = [task for case in cases for task in (*case.get("tasks", ()), case.get("task")) if isinstance(task, dict)]
    assert len(tasks) > 30
    assert [f"{task['task']}: {error.json_path}" for task in tasks for error in validator.iter_errors(task)] == []


@pytest.mark.parametrize("example", ["all-active", "active-passive", "event-grid"])
def test_every_file_of_a_new_project_names_a_schema_beside_it(example: str, tmp_path: Path) -> None:
    write_project(tmp_path / "project", example)
    files = sorted((tmp_path / "project/config").rglob("*.yaml"))
    assert [problem for path in files for problem in _problems(path)] == []


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("connections.yaml", "west: {kind: servicebus, setting: WEST}", "$.west.kind"),
        ("connections.yaml", "west: {kind: service-bus, settings: WEST}", "$.west"),
        ("tasks/a.yaml", "task: a\nsource: {connection: west, queue: a}\nroutes: [{targett: {}}]", "$.routes[0]"),
        (
            "tasks/a.yaml",
            "task: a\nsource: {connection: west, queue: a}\nroutes: [{target: {connection: e}}]\nloop_prevention: on",
            "$.loop_prevention",
        ),
        ("topology.yaml", "west: {queues: {a: {max_delivery_count: 0}}}", "$.west.queues.a"),
        ("journal.yaml", "blob: {container: journal}", "$.blob"),
    ],
)
def test_the_schema_finds_the_mistake(name: str, content: str, problem: str, tmp_path: Path) -> None:
    write_project(tmp_path / "project", "all-active")
    path = tmp_path / "project/config" / name
    what = "task" if name.startswith("tasks/") else name.removesuffix(".yaml")
    folder = "../" if what == "task" else ""
    path.write_text(f"# yaml-language-server: $schema={folder}{what}.schema.json\n{content}\n")
    assert any(problem in found for found in _problems(path))
