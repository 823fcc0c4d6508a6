"""The distribution busway-broker: what its wheel contains, and that it runs where nothing of the repository is."""

import ast
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "shared", folder / "shared")
    shutil.copytree(ROOT / "broker", folder / "broker", ignore=shutil.ignore_patterns("tests", "build", "*.egg-info"))
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder]
    run(sys.executable, "-m", "pip", "wheel", *options, "./broker", folder=folder)
    [wheel] = folder.glob("busway_broker-*.whl")
    return wheel


def test_the_wheel_has_one_package_that_imports_nothing_else_of_the_repository(wheel: Path, tmp_path: Path) -> None:
    script = """if True:
        import sys
        here, repository = sys.argv[1:]
        sys.path = [here, *(each for each in sys.path if "site-packages" in each or not each.startswith(repository))]
        import pkgutil, busway_broker
        assert busway_broker.__path__ == [here + "/busway_broker"], busway_broker.__path__
        for each in pkgutil.walk_packages(busway_broker.__path__, "busway_broker."):
            if each.name != "busway_broker.__main__":
                __import__(each.name)
        print(sorted({name.partition(".")[0] for name in sys.modules} & {"shared", "host", "cli", "functions"}))
        print(busway_broker.shared.rules.parse_filter("priority > 5"))
    """
    zipfile.ZipFile(wheel).extractall(tmp_path)
    none, parsed = run(sys.executable, "-c", script, tmp_path, ROOT, folder=tmp_path).splitlines()
    assert none == "[]"
    assert "priority" in parsed
    assert not (tmp_path / "busway_broker/shared/message").exists()


def test_no_string_names_a_module_that_has_another_name_in_the_wheel() -> None:
    texts = [
        f"{file}:{child.lineno}"
        for file in sorted((ROOT / "broker/busway_broker").rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if not isinstance(node, ast.Expr)
        for child in ast.iter_child_nodes(node)
        if isinstance(child, ast.Constant) and re.search(r"\bshared\.[a-z]", str(child.value))
    ]
    assert texts == []


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
    example = (ROOT / "broker/README.md").read_text(encoding="utf-8").split("```python\n")[1].partition("```")[0]
    (tmp_path / "test_example.py").write_text(example, encoding="utf-8")
    assert "1 passed" in run(python, "-m", "pytest", "-q", "test_example.py", folder=tmp_path)
