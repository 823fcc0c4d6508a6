"""docs/patterns/ and the pages of other ends: they show the files of the examples, which have no findings."""

from pathlib import Path

import pytest

from cli.entities import beside, entities_of
from shared.review import review
from shared.tasks.files import load
from tests.end_to_end.busway_process import ROOT
from tests.end_to_end.pattern_pages import FOLDERS, PAGE, RUNS, SHOWN

# What `busway start` has without a file of entities, or reaches at the address in a setting.
REAL = {"storage-queue", "kafka", "event-grid", "amqp"}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_the_page_shows_the_file_of_each_pattern(folder: Path) -> None:
    (file,) = (folder / "tasks").iterdir()
    assert file.name == f"{folder.name}.yaml"
    schema_line, _, shown = file.read_text(encoding="utf-8").partition("\n")
    assert schema_line == "# yaml-language-server: $schema=../../../task.schema.json"
    assert SHOWN[str(file.relative_to(ROOT))] == shown


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_strict_check_of_a_pattern_with_known_entities_has_no_findings(folder: Path) -> None:
    configuration = load(folder)
    entities = entities_of([str(path) for path in beside(folder)], configuration.connections)
    unknown = [
        alias for alias, connection in configuration.connections.items() if entities.namespace(connection) is None
    ]
    assert [each for each in unknown if configuration.connections[each].kind not in REAL] == []
    assert [str(finding) for finding in review(configuration, entities)] == []


def test_every_pattern_is_run() -> None:
    assert {Path(folder).name for folder, _, _ in RUNS} == {folder.name for folder in FOLDERS}
    assert PAGE.count("<!-- run:") == len(RUNS)
    for folder in FOLDERS:
        assert (
            f"busway check --strict config/examples/{folder.name}\nbusway start config/examples/{folder.name}\n" in PAGE
        )
