"""docs/patterns/ and the pages of other ends: they show the files of the examples, which have no findings."""

from pathlib import Path

import pytest

from cli.entities import beside, entities_of
from shared.review import review
from shared.tasks.files import load
from tests.end_to_end.busway_process import ROOT
from tests.end_to_end.pattern_pages import FOLDERS, PAGE, RUNS, SHOWN, WITH_BROKERS

# What `busway start` has without a file of entities, or reaches at the address in a setting.
REAL = {"storage-queue", "kafka", "event-grid", "amqp"}
ON_PAGES = [folder for folder in FOLDERS if folder.relative_to(ROOT).as_posix() != WITH_BROKERS]


@pytest.mark.parametrize("folder", ON_PAGES, ids=lambda path: path.name)
def test_the_page_shows_the_file_of_each_pattern(folder: Path) -> None:
    (file,) = (folder / "tasks").iterdir()
    assert file.name == f"{folder.name}.yaml"
    schema_line, _, shown = file.read_text(encoding="utf-8").partition("\n")
    assert schema_line == "# yaml-language-server: $schema=../../../task.schema.json"
    name = str(file.relative_to(ROOT))
    documents, on_page = shown.split("---\n"), SHOWN[name].removesuffix("\n").split("\n---\n")
    # A page may leave out documents that are like the ones it shows, and links the file then.
    assert [each for each in on_page if f"{each}\n" not in documents] == []
    assert len(on_page) == len(documents) or f"[the whole file](../../{name})" in PAGE


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
    assert {Path(folder).name for folder, _, _ in RUNS} == {folder.name for folder in ON_PAGES}
    assert PAGE.count("<!-- run:") == len(RUNS)
    assert f"{WITH_BROKERS}/tasks/" in PAGE
    for folder in ON_PAGES:
        assert f"`busway start config/examples/{folder.name}`" in PAGE
