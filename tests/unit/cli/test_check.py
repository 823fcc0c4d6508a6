from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app

TASK = """\
task: orders-copy
source: {connection: west, queue: orders}
routes:
  - when: "[priority] > 5"
    target: {connection: east, queue: orders-express}
  - target: {connection: east, queue: orders}
rejects: {connection: west, queue: orders-rejected}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "connections.yaml").write_text(
        "west: {kind: service-bus, setting: WEST}\neast: {kind: service-bus, setting: EAST, site: far-east}\n"
    )
    (tmp_path / "tasks/orders.yaml").write_text(TASK)
    return tmp_path


def test_a_good_folder_is_shown_as_a_table(folder: Path) -> None:
    result = CliRunner().invoke(app, ["check", str(folder)])
    assert result.exit_code == 0
    line = next(line for line in result.output.splitlines() if "orders-copy" in line)
    assert "west/orders" in line
    assert "when [priority] > 5 → far-east/orders-express" in line
    assert "west/orders-rejected" in line


def test_every_problem_of_every_file_is_told_with_its_path(folder: Path) -> None:
    (folder / "tasks/orders.yaml").write_text(TASK.replace("rejects:", "rejected:").replace("> 5", ">"))
    (folder / "tasks/more.yaml").write_text(TASK.replace("connection: east", "connection: eest"))
    result = CliRunner().invoke(app, ["check", str(folder)])
    assert result.exit_code == 1
    told = result.stderr.splitlines()
    assert any("orders.yaml: rejected: unknown key" in line for line in told)
    assert any("orders.yaml: routes[0].when" in line for line in told)
    assert any("more.yaml: routes[0].target.connection" in line and "eest" in line for line in told)
    assert result.stdout == ""


def test_a_folder_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["check", str(tmp_path / "nowhere")])
    assert result.exit_code == 1
    assert "connections.yaml: the file is missing" in result.stderr


def test_the_repository_has_no_problem() -> None:
    result = CliRunner().invoke(app, ["check", str(Path(__file__).parents[3] / "config")])
    assert result.exit_code == 0
    assert "events-west-to-east" in result.output
