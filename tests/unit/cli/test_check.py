import shutil
import time
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from cli.check_folder import print_tasks
from cli.main import app
from shared.tasks.files import load

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


def check(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["check", *map(str, arguments)])


def test_a_good_folder_is_shown_as_a_table(folder: Path) -> None:
    result = check(folder)
    assert result.exit_code == 0
    line = next(line for line in result.output.splitlines() if "orders-copy" in line)
    assert "west/orders" in line
    assert "when [priority] > 5 → far-east/orders-express" in line
    assert "west/orders-rejected" in line


def test_the_good_news_comes_first_and_names_fit_or_get_lines_of_their_own(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "orders-of-the-whole-company-from-west-to-far-east"
    (folder / "tasks/orders.yaml").write_text(TASK.replace("task: orders-copy", f"task: {name}"))
    assert check(folder).stdout.splitlines()[0].startswith("1 task: no ")
    for width in (80, 160):
        print_tasks(load(folder), Console(width=width, highlight=False, markup=False))
        shown = capsys.readouterr().out
        assert name in shown
        assert "→ far-east/orders-express" in shown
        assert ("┃" in shown) == (width == 160)


def test_every_problem_is_printed_with_the_path_of_its_file(folder: Path) -> None:
    (folder / "tasks/orders.yaml").write_text(TASK.replace("rejects:", "rejected:").replace("> 5", ">"))
    (folder / "tasks/more.yaml").write_text(TASK.replace("connection: east", "connection: eest"))
    result = check(folder)
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    assert any("orders.yaml: rejected: unknown key" in line for line in lines)
    assert any("orders.yaml: routes[0].when" in line for line in lines)
    assert any("more.yaml: routes[0].target.connection" in line and "eest" in line for line in lines)
    assert result.stdout == ""


GOLDEN = Path(__file__).parents[2] / "golden/broken"
EXAMPLES = Path(__file__).parents[3] / "config/examples"


def test_an_error_in_the_set_of_tasks_fails_with_its_remedy() -> None:
    result = check(GOLDEN / "02-one-bit-mark-in-a-ring")
    assert result.exit_code == 1
    first, *_, last = result.stderr.splitlines()
    assert first.startswith("error one-bit-mark: ")
    assert "tasks/events.yaml: document 2: source.rule.filter: " in first
    assert first.endswith("or connect every site with every other site)")
    assert last.startswith("Not checked without --entities: ")
    assert " of west, east and north; `busway export` writes them" in last
    assert result.stdout == ""


def test_a_warning_fails_only_a_strict_check() -> None:
    folder = str(GOLDEN / "12-a-mesh-without-marks")
    result = check(folder)
    assert result.exit_code == 0
    assert "warning arrives-twice: " in result.stderr
    assert "events-west-to-east" in result.stdout
    strict = check(folder, "--strict")
    assert strict.exit_code == 1
    assert strict.stderr == result.stderr


def test_entities_in_the_folder_or_given_ones_are_checked(tmp_path: Path) -> None:
    by_default = check(GOLDEN / "07-default-left-beside-a-rule")
    folder = shutil.copytree(GOLDEN / "07-default-left-beside-a-rule", tmp_path / "config")
    tmp_path.joinpath("host.json").write_text('{"functionTimeout": "02:00:00"}', encoding="utf-8")
    moved = (folder / "entities").rename(tmp_path / "elsewhere")
    west, east = str(moved / "west.json"), f"east={moved / 'east.json'}"
    for result in (by_default, check(folder, "--entities", west, "--entities", east)):
        assert result.exit_code == 1
        assert "warning default-beside-action: " in result.stderr
        assert "Not checked" not in result.stderr
    half = check(folder, "--entities", west)
    assert any(line.startswith("Not checked ") and " of east; " in line for line in half.stderr.splitlines())


def test_host_file_above_the_folder_is_checked(tmp_path: Path) -> None:
    folder = tmp_path / "app/config"
    shutil.copytree(EXAMPLES / "all-active", folder)
    without = f"Not checked: host.json, which is in no folder above {folder}."
    for host, code, problem in (
        (None, 0, without),
        ('{"functionTimeout": "00:18:00"}', 1, "error hold-near-timeout: "),
        ('{"functionTimeout": 2}', 1, "host.json.functionTimeout: 2, expected text"),
    ):
        if host is not None:
            tmp_path.joinpath("app/host.json").write_text(host, encoding="utf-8")
        result = check(folder)
        assert (result.exit_code, problem in result.stderr) == (code, True)


def test_what_cannot_be_read_is_a_problem(folder: Path) -> None:
    for arguments, problem in (
        ((folder / "nowhere",), f"{folder / 'nowhere'}: there is no such folder (name the folder that contains"),
        ((folder, "--entities", folder / "west.json"), "west.json: cannot be read"),
    ):
        result = check(*arguments)
        assert (result.exit_code, problem in result.stderr) == (1, True)


def test_several_folders_are_checked_and_one_invalid_folder_fails_the_command_unlike_our_own() -> None:
    good, bad = str(EXAMPLES / "all-active"), str(GOLDEN / "02-one-bit-mark-in-a-ring")
    result = check("--strict", good, bad, good)
    assert result.exit_code == 1
    lines = result.stderr.splitlines()
    assert [line for line in lines if line.endswith(":")] == [f"{good}:", f"{bad}:", f"{good}:"]
    assert result.stdout.count("orders-west-to-east") == 2
    result = check(Path(__file__).parents[3] / "config")
    assert (result.exit_code, "events-west-to-east" in result.output) == (0, True)


def test_a_thousand_tasks_are_checked_in_seconds(folder: Path) -> None:
    both_ways = ("west", "east"), ("east", "west")
    for number in range(500):
        documents = [
            f"task: t-{number}-{source}\nsource: {{connection: {source}, queue: orders-{number}}}\n"
            f"routes:\n  - target: {{connection: {target}, queue: orders-{number}}}\n"
            f"rejects: {{connection: {source}, queue: rejected}}\n"
            for source, target in both_ways
        ]
        (folder / f"tasks/{number}.yaml").write_text("---\n".join(documents))
    began = time.process_time()
    result = check(folder)
    # A tenth of that on an idle machine. What grows with the square of the number takes minutes.
    assert time.process_time() - began < 10
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 1002
