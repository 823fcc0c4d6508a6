"""What an operator sees of an app that cannot start."""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from functions.startup import problems_on_standard_error, warn_about_worker, worker_problem
from shared.errors import ConfigError, Problem
from tests.architecture.imports import ROOT


def worker_module(version: str) -> ModuleType:
    module = ModuleType("proxy_worker.version")
    module.VERSION = version  # type: ignore[attr-defined] # as the module of the worker defines it
    return module


def test_app_with_two_faults_in_its_files_prints_both_to_standard_error(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    tmp_path.joinpath("connections.yaml").write_text("west: {kind: service-bus, setting: WEST}\n", encoding="utf-8")
    tasks.joinpath("a.yaml").write_text("task: a\nsource: {connection: wset, queue: q}\n", encoding="utf-8")
    started = subprocess.run(
        [sys.executable, "-c", "import function_app"],
        cwd=ROOT, env=os.environ | {"BUSWAY_CONFIG": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert started.returncode == 1
    printed = [line for line in started.stderr.splitlines() if line.startswith("busway: ")]
    assert any("unknown connection 'wset' (did you mean 'west'?)" in line for line in printed)
    assert any("routes: is missing" in line for line in printed)


def test_problems_are_printed_one_per_line_and_the_error_is_raised(capfd: pytest.CaptureFixture[str]) -> None:
    problems = [Problem("tasks/a.yaml: ttl", "is wrong", "fix it"), Problem("tasks/b.yaml", "the file is empty")]
    with pytest.raises(ConfigError), problems_on_standard_error():
        raise ConfigError(problems)
    assert capfd.readouterr().err == (
        "busway: tasks/a.yaml: ttl: is wrong (fix it)\nbusway: tasks/b.yaml: the file is empty\n"
    )


def test_foreign_error_is_printed_without_its_text(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="SharedAccessKey"), problems_on_standard_error():
        raise ValueError("Endpoint=sb://x;SharedAccessKey=not-a-key")
    printed = capfd.readouterr().err
    assert "ValueError at test_startup.py, line " in printed
    assert "SharedAccessKey" not in printed


@pytest.mark.parametrize(
    ("version", "is_old"), [("4.40.1", True), ("4.9.12", True), ("4.40.2", False), ("5.0.0", False)]
)
def test_worker_that_may_hang_on_large_batches_is_reported(
    version: str, is_old: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    warn_about_worker({"proxy_worker.version": worker_module(version)})
    assert (f"version {version} may hang forever on a batch of more than 4 MiB" in capfd.readouterr().err) is is_old


@pytest.mark.parametrize("version", ["", "unknown", "4.41"])
def test_unreadable_version_is_ignored(version: str) -> None:
    assert worker_problem(version) is None


def test_other_hosts_have_no_worker_version(capfd: pytest.CaptureFixture[str]) -> None:
    warn_about_worker({})
    assert capfd.readouterr().err == ""
