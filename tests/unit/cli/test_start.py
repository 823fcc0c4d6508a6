"""`busway start` finds the namespaces of a configuration folder; the processes themselves are tested end to end."""

import contextlib
import shutil
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.entities import beside, settings_of
from cli.main import app
from shared.tasks.files import load

EXAMPLES = Path(__file__).parents[3] / "config/examples"


def test_a_namespace_file_is_named_after_its_connection(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    shutil.copytree(EXAMPLES / "all-active", folder)
    (folder / "connections.yaml").write_text(
        "west: {kind: service-bus, setting: FIRST}\neast: {kind: service-bus, setting: SECOND, site: far-east}\n"
    )
    connections = load(folder).connections
    assert [settings_of(file, connections) for file in beside(folder)] == [{"SECOND"}, {"FIRST"}]


def test_a_namespace_file_without_a_connection_is_reported_before_the_start(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    shutil.copytree(EXAMPLES / "all-active", folder)
    (folder / "entities/east.json").rename(folder / "entities/aest.json")
    result = CliRunner().invoke(app, ["start", str(folder)])
    assert result.exit_code == 1
    problem = f"its name is not that of a connection of the same kind in {folder} (expected one of west, east)"
    assert f"entities/aest.json: {problem}" in result.stderr


def test_a_missing_queue_is_reported_before_the_start(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    shutil.copytree(EXAMPLES / "all-active", folder)
    entities = folder / "entities/east.json"
    entities.write_text(entities.read_text().replace('"orders"', '"orders-old"'))
    result = CliRunner().invoke(app, ["start", str(folder), "--port", "0"])
    assert result.exit_code == 1
    assert "all-active.yaml: document 1: routes[0].target" in result.stderr
    assert (
        "east has no topic orders (create it, on this machine with `busway plan --config-json config/entities`"
        in result.stderr
    )
    assert "Starting" not in result.stdout


def test_a_port_in_use_is_reported_before_the_start() -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        result = CliRunner().invoke(app, ["start", str(EXAMPLES / "all-active"), "--port", str(port)])
    assert result.exit_code == 1
    hint = "(stop the other program, or let every port be a free one: --port 0)"
    assert f"port {port}: is in use, expected a free port for a namespace {hint}" in result.stderr
    assert "Starting" not in result.stdout


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["start", str(tmp_path / "nowhere")])
    assert result.exit_code == 1
    assert "there is no such folder" in result.stderr


def test_sending_to_an_unknown_connection_lists_the_known_ones() -> None:
    result = CliRunner().invoke(app, ["send", "--config", str(EXAMPLES / "all-active"), "wset/orders", "hello"])
    assert result.exit_code == 1
    assert "wset/orders: is not an entity of a connection (expected west/ENTITY, east/ENTITY)" in result.stderr


def test_receiving_without_the_app_setting_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WEST", raising=False)
    result = CliRunner().invoke(app, ["receive", "--config", str(EXAMPLES / "all-active"), "west/orders"])
    assert result.exit_code == 1
    assert "WEST: the app setting is missing" in result.stderr
