"""`busway start` finds the namespaces of a configuration folder; the processes themselves are tested end to end."""

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.entities import beside, settings_of
from cli.main import app
from shared.config.files import load

EXAMPLES = Path(__file__).parents[3] / "config/examples"


def test_a_namespace_is_for_the_setting_of_the_connection_that_its_file_is_named_after(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    shutil.copytree(EXAMPLES / "all-active", folder)
    (folder / "connections.yaml").write_text(
        "west: {kind: service-bus, setting: FIRST}\neast: {kind: service-bus, setting: SECOND, site: far-east}\n"
    )
    connections = load(folder).connections
    assert [settings_of(file, connections) for file in beside(folder)] == [{"SECOND"}, {"FIRST"}]


def test_a_file_that_is_named_after_no_connection_is_told_of_before_anything_starts(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    shutil.copytree(EXAMPLES / "all-active", folder)
    (folder / "entities/east.json").rename(folder / "entities/aest.json")
    result = CliRunner().invoke(app, ["start", str(folder)])
    assert result.exit_code == 1
    problem = f"its name is not that of a connection of the same kind in {folder} (expected one of west, east)"
    assert f"entities/aest.json: {problem}" in result.stderr


def test_a_folder_that_is_not_there_is_told_of(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["start", str(tmp_path / "nowhere")])
    assert result.exit_code == 1
    assert "connections.yaml: the file is missing" in result.stderr


def test_sending_to_what_is_no_connection_says_what_there_is() -> None:
    result = CliRunner().invoke(app, ["send", "--config", str(EXAMPLES / "all-active"), "wset/orders", "hello"])
    assert result.exit_code == 1
    assert "wset/orders: is not an entity of a connection (expected west/ENTITY, east/ENTITY)" in result.stderr


def test_receiving_without_the_app_setting_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEST", raising=False)
    result = CliRunner().invoke(app, ["receive", "--config", str(EXAMPLES / "all-active"), "west/orders"])
    assert result.exit_code == 1
    assert "WEST: the app setting is missing" in result.stderr
