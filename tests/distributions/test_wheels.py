"""The four distributions: what their wheels contain, and that they run where nothing of the repository is."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import busway_reconcile

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.12", "3.13", "3.14")
BUILD = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"


class Distribution(NamedTuple):
    """A distribution: its folder, its package, the oldest Python, and what an empty environment runs."""

    folder: str
    package: str
    python: str
    extras: str
    runs: tuple[tuple[str, str], ...]
    """Commands in the environment's folder of programs, each with a part of its output."""

    @property
    def project(self) -> dict[str, Any]:
        return dict(tomllib.loads((ROOT / self.folder / "pyproject.toml").read_text(encoding="utf-8"))["project"])


NEW = "busway new orders && cd orders && busway package && test -d build/app/shared && echo packaged"
SEND = """
from azure.servicebus import ServiceBusClient, ServiceBusMessage
import subprocess
command = ["busway-broker", "--port", "0", "--create-entities"]
with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
    name, string = process.stdout.readline().removeprefix("ready ").split(maxsplit=1)
    with ServiceBusClient.from_connection_string(string.strip()) as client:
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("hello"))
        with client.get_queue_receiver("orders") as receiver:
            print(name, receiver.receive_messages()[0])
    process.terminate()
"""
# There is no Docker: what it would answer is given.
CONTAINER = """
from busway_broker.testcontainers import BuswayBrokerContainer
container = BuswayBrokerContainer.__new__(BuswayBrokerContainer)
container.get_container_host_ip = lambda: "localhost"
container.get_exposed_port = {5672: 40001, 5673: 40002, 5300: 40003}.get
print(container.service_bus, container.event_hubs, container.administration)
"""
DISTRIBUTIONS = {
    "busway": Distribution(
        ".",
        "busway",
        "3.13",
        "",
        (
            ("busway --help", "Usage: busway"),
            (NEW, "packaged"),
            ("cd orders && busway docs docs/runbook.md#alert-held", "### Alert: held"),
            ("cd orders && busway docs 'receiver with a higher epoch'", "troubleshooting#messages-do-not-arrive"),
        ),
    ),
    "busway-broker": Distribution(
        "broker",
        "busway_broker",
        "3.12",
        "",
        (
            ("busway-broker --version", "busway-broker 0."),
            # What it needs by itself comes before the test's own packages.
            ("python -c 'import busway_broker.admin.server'", ""),
            ("pip install --quiet azure-servicebus pytest", ""),
            (f"python -c '{SEND}'", "service-bus hello"),
            ("pytest -q test_example.py", "1 passed"),
            ("pip install --quiet testcontainers", ""),
            (f"python -c '{CONTAINER}'", "Endpoint=sb://localhost:40001;SharedAccessKeyName=Root"),
        ),
    ),
    "busway-clients": Distribution(
        "clients",
        "busway_clients",
        "3.11",
        "[tables]",
        (("python -c 'import busway_clients.aio; print(busway_clients.ActiveSender)'", "ActiveSender"),),
    ),
    "busway-reconcile": Distribution(
        "jobs/reconcile",
        "busway_reconcile",
        "3.11",
        "[local]",
        (
            ("busway-reconcile --help", "--journal"),
            ("python -m busway_reconcile --help", "--journal"),
            ("python -c 'import busway_reconcile; busway_reconcile.run(\"--help\")'", "--journal"),
        ),
    ),
}
APP = ("function_app.py", "host.json", "requirements.txt", "config", "functions", "shared", "cli", "host", "infra")
ELSEWHERE = ("shared", "host", "cli", "functions", "jobs")


def run(command: str, folder: Path, **settings: str) -> str:
    """Run a line of the shell without the repository's packages and return its output."""
    kept = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    shell = ["bash", "-euc", command]
    done = subprocess.run(shell, cwd=folder, env=kept | settings, capture_output=True, text=True, check=False)  # noqa: S603 - the test's own
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the wheels by distribution, built from a copy, because a build writes into its folder."""
    copy, out = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("wheels")
    listed = run("git ls-files --cached --others --exclude-standard", ROOT).splitlines()
    for name in listed:
        if (ROOT / name).is_file() and not name.startswith(("tests/", "docs/images/", "broker/tests/")):
            target = copy / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target)
    for distribution in DISTRIBUTIONS.values():
        run(f"{sys.executable} -c '{BUILD}' {out}", copy / distribution.folder)
    return {name: next(out.glob(f"{distribution.package}-*.whl")) for name, distribution in DISTRIBUTIONS.items()}


def test_all_distributions_have_the_same_version() -> None:
    assert len({distribution.project["version"] for distribution in DISTRIBUTIONS.values()}) == 1


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_a_wheel_has_one_package_its_types_its_licence_and_a_page(name: str, wheels: dict[str, Path]) -> None:
    package, version = DISTRIBUTIONS[name].package, DISTRIBUTIONS[name].project["version"]
    archive = zipfile.ZipFile(wheels[name])
    information = f"{package}-{version}.dist-info"
    assert {entry.partition("/")[0] for entry in archive.namelist()} == {package, information}
    assert {f"{package}/py.typed", f"{information}/licenses/LICENSE"} <= set(archive.namelist())
    metadata = message_from_string(archive.read(f"{information}/METADATA").decode())
    assert (metadata["License-Expression"], metadata["Description-Content-Type"]) == ("MIT", "text/markdown")
    assert {url.partition(",")[0] for url in metadata.get_all("Project-URL", [])} == {"Homepage", "Changelog"}
    page = str(metadata.get_payload())
    assert page.startswith(f"# {name}\n")
    assert re.findall(r"\]\((?!https://|#)[^)]*\)", page) == [], "a relative link leads nowhere in a package index"


def test_the_command_carries_the_app_as_it_is_here(wheels: dict[str, Path]) -> None:
    carried = set(zipfile.ZipFile(wheels["busway"]).namelist())
    expected = run(f"git ls-files --cached {' '.join(APP)} broker/busway_broker clients/busway_clients", ROOT)
    here = [name for name in expected.splitlines() if (ROOT / name).exists()]
    assert [name for name in here if f"busway/app/{name}" not in carried] == []
    assert not any("node_modules" in name or "/tests/" in name for name in carried)


def test_the_command_works_from_its_wheel_in_an_empty_folder(wheels: dict[str, Path], tmp_path: Path) -> None:
    zipfile.ZipFile(wheels["busway"]).extractall(tmp_path / "site")
    (tmp_path / "empty").mkdir()
    busway = f'busway() {{ {sys.executable} -m busway "$@"; }}; '
    printed = run(busway + NEW, tmp_path / "empty", PYTHONPATH=str(tmp_path / "site"))
    assert printed.endswith("packaged\n")
    page = run(
        busway + "busway docs docs/runbook.md#alert-held", tmp_path / "empty/orders", PYTHONPATH=str(tmp_path / "site")
    )
    assert page.startswith("### Alert: held\n")
    package = tmp_path / "empty/orders/build"
    assert (package / "app/function_app.py").is_file()
    assert (package / "nightly/jobs/reconcile/busway_reconcile/container.py").is_file()


def test_the_job_without_a_spark_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert busway_reconcile.run("--help") == 2
    assert "pip install 'busway-reconcile[local]'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["busway-broker", "busway-reconcile"])
def test_the_wheel_imports_nothing_else_of_the_repository(name: str, wheels: dict[str, Path], tmp_path: Path) -> None:
    script = """if True:
        import pkgutil, sys
        here, repository, package, *others = sys.argv[1:]
        sys.path = [here, *(each for each in sys.path if "site-packages" in each or not each.startswith(repository))]
        top = __import__(package)
        assert top.__path__ == [here + "/" + package], top.__path__
        for each in pkgutil.walk_packages(top.__path__, package + "."):
            if not each.name.endswith(("__main__", ".testcontainers")):
                __import__(each.name)
        print(sorted({name.partition(".")[0] for name in sys.modules} & set(others)))
    """
    zipfile.ZipFile(wheels[name]).extractall(tmp_path)
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    package = DISTRIBUTIONS[name].package
    line = f"{sys.executable} script.py {tmp_path} {ROOT} {package} {' '.join(ELSEWHERE)}"
    assert run(line, tmp_path) == "[]\n"
    assert not (tmp_path / package / "shared/message").exists()


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


def interpreter(version: str) -> Path:
    """Return a Python of this machine, pyenv's or one that uv knows; the test is skipped without one."""
    for python in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python")):
        return python
    find = [sys.executable, "-m", "uv", "python", "find", "--no-python-downloads", version]
    found = subprocess.run(find, capture_output=True, text=True, check=False, cwd="/")  # noqa: S603 - uv of this environment
    if found.returncode:
        pytest.skip(f"Python {version} is not installed")
    return Path(found.stdout.strip())


@pytest.mark.slow
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_it_runs_in_an_empty_environment(name: str, python: str, wheels: dict[str, Path], tmp_path: Path) -> None:
    distribution = DISTRIBUTIONS[name]
    if tuple(map(int, python.split("."))) < tuple(map(int, distribution.python.split("."))):
        pytest.skip(f"{name} needs Python {distribution.python}")
    programs = tmp_path / "environment/bin"
    run(f"{interpreter(python)} -m venv environment", tmp_path)
    run(f"{programs}/pip install --quiet '{wheels[name]}{distribution.extras}'", tmp_path)
    installed = run(f"ls {programs}/../lib/python{python}/site-packages", tmp_path).split()
    assert not {*ELSEWHERE} & set(installed)
    example = (ROOT / "broker/README.md").read_text(encoding="utf-8").split("```python\n")[1].partition("```")[0]
    (tmp_path / "test_example.py").write_text(example, encoding="utf-8")
    for command, expected in distribution.runs:
        assert expected in run(command, tmp_path, PATH=f"{programs}:{os.environ['PATH']}")


@pytest.mark.slow
def test_uv_installs_and_runs_the_command(wheels: dict[str, Path], tmp_path: Path) -> None:
    uv, wheel, python = f"{sys.executable} -m uv", wheels["busway"], interpreter("3.13")
    settings = {
        "UV_TOOL_DIR": str(tmp_path / "tools"),
        "UV_TOOL_BIN_DIR": str(tmp_path / "bin"),
        "XDG_CACHE_HOME": str(tmp_path),
    }
    settings["UV_CACHE_DIR"] = run(f"{uv} cache dir", tmp_path).strip()
    run(f"{uv} tool install --quiet --python {python} {wheel}", tmp_path, **settings)
    assert re.fullmatch(
        r"busway 0\.\d+\.\d+(\.dev\d+(\+g[0-9a-f]{9})?)?\n", run("bin/busway --version", tmp_path, **settings)
    )
    demo = run(
        f"{uv} tool run --quiet --python {python} --from {wheel} busway demo --count 100 2>&1", tmp_path, **settings
    )
    assert "Not reconciled" in demo
    assert "pip install 'busway[night]'" in demo


@pytest.mark.slow
def test_an_index_would_show_the_pages(wheels: dict[str, Path], tmp_path: Path) -> None:
    names = " ".join(map(str, wheels.values()))
    checked = run(
        f"{sys.executable} -m uv tool run --quiet --from twine twine --no-color check --strict {names}", tmp_path
    )
    assert checked.count("PASSED") == len(wheels)
