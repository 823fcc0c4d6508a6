"""A project of a user: written in an empty folder, checked, started, packaged, and upgraded by its version."""

import json
import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from cli.main import app
from tests.end_to_end.busway_process import ROOT, BuswayProcess

pytestmark = [pytest.mark.slow, pytest.mark.long]

PAGE = (ROOT / "docs/azure.md").read_text(encoding="utf-8")
# What the tutorial does after the deployment, without the line that asks Azure for the settings.
FIRST_MESSAGE = re.findall(r"^busway .*$", PAGE.partition("## 4.")[2].partition("## 5.")[0], re.MULTILINE)

ORYX = ("remote-build", "scm-do-build-during-deployment", "enable-oryx-build")


def busway(*arguments: str, settings: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, [*arguments], env={"BUSWAY_CONFIG": None, **(settings or {})})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "my-replicator"
    assert busway("new", str(folder)).exit_code == 0
    monkeypatch.chdir(folder)
    return folder


# azure-servicebus tests the truth value of XML elements.
@pytest.mark.filterwarnings("ignore:Testing an element's truth value:DeprecationWarning")
def test_a_new_project_checks_starts_and_carries_the_first_message_of_the_tutorial(project: Path) -> None:
    checked = busway("check")
    assert (checked.exit_code, checked.stdout.startswith("1 task: no problems")) == (0, True), checked.output
    with BuswayProcess("start", "--port", "0", folder=project) as running:
        while not running.lines(1)[0].startswith("Press Ctrl-C"):
            pass
        text = (project / "build/start/settings").read_text()
        settings = dict(re.findall(r'^export (\w+)="?(.*?)"?$', text, re.MULTILINE))
        printed = {each: said(each, settings) for each in FIRST_MESSAGE}
        without_session = busway("receive", "east/orders", settings=settings)
    assert list(printed) == [
        "busway plan",
        "busway smoke --yes",
        "busway send west/orders 'two bicycles' --session a --id first",
        "busway receive east/orders --session a",
        "busway trace first",
        "busway status",
    ]
    plan, smoke, sent, received, trace, status = printed.values()
    assert plan.startswith("Every entity is as the tasks need it.")
    assert "1 of 1 routes carry messages" in smoke
    assert sent == "1 sent to west/orders\n"
    assert received.startswith("two bicycles  message_id=first session_id=a")
    assert "east/orders accepted it" in " ".join(trace.split())
    assert without_session.stderr == "east/orders: has sessions (name one: --session ID)\n"
    assert status.startswith("1 task: 1 running; nothing waits.")


def said(command: str, settings: dict[str, str]) -> str:
    """Run a command that the tutorial prints, and return its output."""
    result = busway(*shlex.split(command)[1:], settings=settings)
    assert result.exit_code == 0, f"{command}: {result.output}"
    return result.output


def test_the_package_is_the_app_with_the_configuration(project: Path) -> None:
    result = busway("package")
    assert result.exit_code == 0, result.output
    out = project / "build/app"
    assert sorted(path.name for path in out.iterdir()) == [
        "busway-version", "config", "function_app.py", "functions", "host.json", "requirements.txt", "shared",
    ]  # fmt: skip
    assert not (out / "config/entities").exists()
    code = "import importlib.metadata as metadata; known = metadata.version\n"
    # On Azure the app is not installed.
    code += (
        "def installed(name):\n  if name == 'busway': raise metadata.PackageNotFoundError(name)\n  return known(name)\n"
    )
    code += "metadata.version = installed\n"
    code += "import function_app, shared.errors; print(shared.errors.__file__)\n"
    code += "from shared.assembly import status; print(status._version())\n"
    code += "print(*[each.get_function_name() for each in function_app.app.get_functions()])"
    emulated = "Endpoint=sb://localhost;SharedAccessKeyName=a;SharedAccessKey=YQ==;UseDevelopmentEmulator=true"
    ran = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", code],
        cwd=out,
        env={
            **os.environ,
            "PYTHONPATH": str(out),
            "BUSWAY_CONFIG": "config",
            "BUSWAY_JOURNAL": "off",
            "WEST": emulated,
            "EAST": emulated,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    place, found_version, functions = ran.stdout.splitlines()
    assert found_version == version("busway")
    assert Path(place) == out / "shared/errors.py"
    assert "orders-west-to-east" in functions
    before = {path: path.stat().st_ino for path in (project / "build").rglob("*")}
    assert busway("package").exit_code == 0  # again, over the first
    # azd may be packing it at this moment.
    assert {path: path.stat().st_ino for path in (project / "build").rglob("*")} == before
    (out / "host.json").write_text("{}")
    assert busway("package").exit_code == 0
    assert json.loads((out / "host.json").read_text())["version"] == "2.0"


def test_the_package_has_nothing_from_elsewhere_and_no_files_of_tools(project: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/key.json").write_text("{}")
    (project / "config/.env").write_text("KEY=1")
    (project / "config/.git").mkdir()
    (project / "config/tables").mkdir()
    (project / "config/tables/one.csv").write_text("a")
    (project / "config/tables/two.csv").symlink_to("one.csv")
    assert busway("package").exit_code == 0
    packaged = project / "build/app/config"
    assert sorted(path.name for path in (packaged / "tables").iterdir()) == ["one.csv", "two.csv"]
    assert not list(packaged.rglob(".*"))
    for link, target in (
        ("config/key.json", "secret/key.json"),
        ("config/tables/all", "secret"),
        ("config/tables/gone", "gone"),
        ("host.json", "secret/key.json"),
    ):
        place = project / link
        kept = place.read_bytes() if place.exists() else None
        place.unlink(missing_ok=True)
        place.symlink_to(tmp_path / target)
        refused = busway("package")
        assert refused.exit_code != 0
        assert f"{link}: is a link to {tmp_path / target}" in refused.stderr
        place.unlink()
        if kept is not None:
            place.write_bytes(kept)


def test_another_version_must_be_chosen_on_purpose(project: Path) -> None:
    (project / ".busway-version").write_text("0.1.0\n")
    refused = busway("package")
    assert refused.exit_code == 1
    assert f".busway-version: is '0.1.0', but this is Busway {version('busway')}" in refused.stderr
    assert not (project / "build/app").exists()


def test_nothing_that_is_not_an_app_is_replaced(project: Path) -> None:
    for folder in (".", "config", ".github"):
        assert busway("package", "--out", folder).exit_code == 1
    assert (project / "config/connections.yaml").is_file()
    again = busway("new", str(project))
    assert again.exit_code == 1
    assert "is not empty" in again.stderr


def test_every_example_makes_a_project_without_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown = busway("new", str(tmp_path / "x"), "--example", "y")
    names = re.findall(r"[a-z-]+", unknown.stderr.split("expected one of ")[1])
    assert len(names) > 10
    for name in names:
        folder = tmp_path / name
        assert busway("new", str(folder), "--example", name).exit_code == 0
        monkeypatch.chdir(folder)
        assert busway("check").exit_code == 0, name


def test_the_workflow_is_yaml_and_runs_commands_that_exist(project: Path) -> None:
    document = yaml.safe_load((project / ".github/workflows/deploy.yml").read_text())
    steps = document["jobs"]["deploy"]["steps"]
    assert any(step.get("run") == "../busway/.venv/bin/busway package" for step in steps)
    # FN48: without its input the action installs no package, on either plan, and the pipeline is green.
    (publish,) = (step["with"] for step in steps if "functions-action" in str(step.get("uses")))
    on_premium = {name: "==" in publish[name] for name in ORYX}
    assert on_premium == {"remote-build": False, "scm-do-build-during-deployment": True, "enable-oryx-build": True}
    assert all("vars.PLAN" in publish[name] and "'premium'" in publish[name] for name in ORYX)
    assert "busway functions" in steps[-1]["run"]
    page = (project / "README.md").read_text()
    for command in re.findall(r"^busway (\w+)", page, re.MULTILINE):
        assert busway(command, "--help").exit_code == 0
