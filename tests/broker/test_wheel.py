"""The distribution busway-broker: what its wheel contains, and that it runs where nothing of the repository is."""

import os
import runpy
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools/build-broker-wheel"
MAKE = runpy.run_path(str(TOOL), run_name="tool")
SLOW = pytest.mark.skipif("BUSWAY_SLOW" not in os.environ, reason="needs the package index; BUSWAY_SLOW=1 runs it")
# Newer versions of Python that are not on this machine are skipped.
PYTHONS = ("3.12", "3.13", "3.14")

RUNS = """
import subprocess, sys
from azure.servicebus import ServiceBusClient, ServiceBusMessage

command = [sys.argv[1], "--port", "0", "--create-entities"]
with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
    name, string = process.stdout.readline().removeprefix("ready ").split(maxsplit=1)
    with ServiceBusClient.from_connection_string(string.strip()) as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("hello"))
        with client.get_queue_receiver("orders") as receiver:
            print(name, receiver.receive_messages()[0])
    process.terminate()
"""


def run(*command: object, folder: Path, **settings: str) -> str:
    """Run a command without the repository's packages and return its output."""
    done = subprocess.run(  # noqa: S603 - the arguments are the test's own
        [str(each) for each in command],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_sources_of_the_wheel_import_nothing_else_of_the_repository(tmp_path: Path) -> None:
    MAKE["copy_sources"](tmp_path)
    script = """if True:
        import sys
        sys.path = [sys.argv[1], *(each for each in sys.path if each not in ("", sys.argv[2]))]
        import pkgutil, busway_broker
        for each in pkgutil.walk_packages(busway_broker.__path__, "busway_broker."):
            if each.name != "busway_broker.__main__":
                __import__(each.name)
        print(sorted({name.partition(".")[0] for name in sys.modules} & {"shared", "local", "cli", "functions"}))
        print(busway_broker.shared.rules.parse_filter("priority > 5"))
    """
    none, parsed = run(sys.executable, "-c", script, tmp_path, ROOT, folder=tmp_path).splitlines()
    assert none == "[]"
    assert "priority" in parsed
    assert {each.name for each in tmp_path.iterdir()} == {"busway_broker", "pyproject.toml", "README.md", "LICENSE"}
    assert not (tmp_path / "busway_broker/shared/message").exists()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import shared.rules\n", "in one line"),
        ("from cli.main import app\n", "imports cli.main"),
        ("from local.host import host\n", "imports local.host"),
        ('__import__("shared.rules")\n', "a string names a module"),
    ],
)
def test_what_would_not_run_there_is_an_error(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "module.py"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(MAKE["NotPortable"], match=problem):
        MAKE["moved"](file)


def test_only_names_of_modules_differ(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text('"""Uses shared.rules."""\nfrom shared import rules\nfrom shared.rules import (\n    Rule,\n)\n')
    text, needed = MAKE["moved"](file)
    assert text == (
        '"""Uses shared.rules."""\nfrom busway_broker.shared import rules\n'
        "from busway_broker.shared.rules import (\n    Rule,\n)\n"
    )
    assert needed == {"shared", "shared.rules"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return Path(run(sys.executable, TOOL, folder, folder=folder).strip())


@SLOW
def test_the_wheel_installs_one_package_with_its_types(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {"busway_broker", "busway_broker-0.2.0.dist-info"}
    assert {"busway_broker/py.typed", "busway_broker-0.2.0.dist-info/licenses/LICENSE"} <= set(names)


def interpreter(version: str) -> Path:
    found = subprocess.run(  # noqa: S603 - uv of this environment
        [sys.executable, "-m", "uv", "python", "find", "--no-python-downloads", version],
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    if found.returncode:
        pytest.skip(f"Python {version} is not installed")
    return Path(found.stdout.strip())


@SLOW
@pytest.mark.parametrize("version", PYTHONS)
def test_it_runs_in_an_empty_environment(wheel: Path, tmp_path: Path, version: str) -> None:
    environment: Any = tmp_path / "environment"
    run(interpreter(version), "-m", "venv", environment, folder=tmp_path)
    python = environment / "bin/python"
    run(python, "-m", "pip", "install", "--quiet", wheel, folder=tmp_path)
    # What it needs by itself, before the test's own packages.
    assert run(environment / "bin/busway-broker", "--version", folder=tmp_path) == "busway-broker 0.2.0\n"
    run(python, "-c", "import busway_broker.admin.server", folder=tmp_path)
    run(python, "-m", "pip", "install", "--quiet", "azure-servicebus", "pytest", folder=tmp_path)
    assert run(python, "-c", RUNS, environment / "bin/busway-broker", folder=tmp_path) == "service-bus hello\n"
    example = (ROOT / "local/broker/README.md").read_text(encoding="utf-8").split("```python\n")[1].partition("```")[0]
    (tmp_path / "test_example.py").write_text(example, encoding="utf-8")
    assert "1 passed" in run(python, "-m", "pytest", "-q", "test_example.py", folder=tmp_path)
