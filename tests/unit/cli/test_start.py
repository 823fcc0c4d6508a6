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


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(EXAMPLES / "all-active", tmp_path / "config"))


def refused(*arguments: str | Path) -> str:
    """Return the error of a command that fails before it starts anything."""
    result = CliRunner().invoke(app, [*map(str, arguments)], env={"WEST": None})
    assert (result.exit_code, result.stdout) == (1, "")
    return result.stderr


def test_a_namespace_file_is_named_after_its_connection(folder: Path) -> None:
    (folder / "connections.yaml").write_text(
        "west: {kind: service-bus, setting: FIRST}\neast: {kind: service-bus, setting: SECOND, site: far-east}\n"
    )
    connections = load(folder).connections
    assert [settings_of(file, connections) for file in beside(folder)] == [{"SECOND"}, {"FIRST"}]


def test_a_missing_queue_and_a_namespace_file_without_a_connection_are_reported_before_the_start(folder: Path) -> None:
    entities = folder / "entities/east.json"
    entities.write_text(entities.read_text().replace('"orders"', '"orders-old"'))
    problem = refused("start", folder, "--port", "0")
    assert "all-active.yaml: document 1: routes[0].target" in problem
    hint = "create it, on this machine with `busway plan --config-json config/entities`"
    assert f"east has no topic orders ({hint}" in problem
    entities.rename(folder / "entities/aest.json")
    problem = f"its name is not that of a connection of the same kind in {folder} (expected one of west, east)"
    assert f"entities/aest.json: {problem}" in refused("start", folder)


def test_a_port_in_use_is_reported_before_the_start(folder: Path) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        problem = refused("start", folder, "--port", str(port))
    hint = "(stop the other program, or let every port be a free one: --port 0)"
    assert f"port {port}: is in use, expected a free port for a namespace {hint}" in problem


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("start", "nowhere"), "there is no such folder"),
        (
            ("send", "--config", EXAMPLES / "all-active", "wset/orders", "hello"),
            "wset/orders: is not an entity of a connection (expected west/ENTITY, east/ENTITY)",
        ),
        (("receive", "--config", EXAMPLES / "all-active", "west/orders"), "WEST: the app setting is missing"),
    ],
)
def test_what_a_command_is_not_given_is_named(arguments: tuple[str | Path, ...], problem: str) -> None:
    assert problem in refused(*arguments)
