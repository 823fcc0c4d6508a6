"""What an operator sees of an app that cannot start."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from azurefunctions.extensions.base import InConverter

from functions import raw_message
from functions.startup import app_with, problems_of, warnings, worker_problem
from shared.errors import ConfigError, Problem
from tests.architecture.imports import ROOT


def worker_module(version: str) -> ModuleType:
    module = ModuleType("proxy_worker.version")
    module.VERSION = version  # type: ignore[attr-defined] # as the module of the worker defines it
    return module


def import_app(config: Path, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", f"import function_app; {code}"],
        cwd=ROOT, env=os.environ | {"BUSWAY_CONFIG": str(config)}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_app_with_two_faults_in_its_files_is_imported_and_reports_both(tmp_path: Path) -> None:
    """FN19: what happens while the worker imports the app may be in no log."""
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    tmp_path.joinpath("connections.yaml").write_text("west: {kind: service-bus, setting: WEST}\n", encoding="utf-8")
    tasks.joinpath("a.yaml").write_text("task: a\nsource: {connection: wset, queue: q}\n", encoding="utf-8")
    started = import_app(tmp_path, "print(*[each.get_function_name() for each in function_app.app.get_functions()])")
    assert (started.returncode, started.stdout) == (0, "busway-problem\n")
    printed = [line for line in started.stderr.splitlines() if line.startswith("busway: ")]
    assert any("unknown connection 'wset' (did you mean 'west'?)" in line for line in printed)
    assert any("routes: is missing" in line for line in printed)


def test_the_function_of_an_app_with_problems_fails_with_all_of_them(capfd: pytest.CaptureFixture[str]) -> None:
    problems = [Problem("tasks/a.yaml: ttl", "is wrong", "fix it"), Problem("tasks/b.yaml", "the file is empty")]
    (function,) = app_with(problems_of(ConfigError(problems))).get_functions()
    assert capfd.readouterr().err == (
        "busway: tasks/a.yaml: ttl: is wrong (fix it)\nbusway: tasks/b.yaml: the file is empty\n"
    )
    with pytest.raises(ConfigError) as raised:
        asyncio.run(function.get_user_function()(None))
    assert "ttl: is wrong (fix it)" in str(raised.value)
    assert "tasks/b.yaml: the file is empty" in str(raised.value)


def test_a_missing_package_is_named() -> None:
    """FN48: a publish without a remote build brings none."""
    (problem,) = problems_of(ModuleNotFoundError("No module named 'pydantic'", name="pydantic"))
    assert "pydantic is not installed" in problem.problem


def test_the_package_of_microsoft_beside_our_sdk_types_is_named() -> None:
    """FN39: one converter for a binding, and the package for event hubs is released."""
    assert issubclass(raw_message.EventHubsConverter, InConverter)
    with pytest.raises(RuntimeError) as raised:

        class _OfAPackage(InConverter, binding="eventHubTrigger"):  # type: ignore[misc,call-arg] # not typed
            pass

    (problem,) = problems_of(raised.value)
    assert "a second time" in problem.problem
    assert problem.hint.startswith("remove azurefunctions-extensions-bindings-servicebus and -eventhub")


def test_foreign_error_is_reported_without_its_text() -> None:
    with pytest.raises(ValueError, match="SharedAccessKey") as raised:
        raise ValueError("Endpoint=sb://x;SharedAccessKey=not-a-key")
    (problem,) = problems_of(raised.value)
    assert "ValueError at test_startup.py, line " in problem.problem
    assert "SharedAccessKey" not in str(problem)


@pytest.mark.parametrize(
    ("version", "is_old"), [("4.40.1", True), ("4.9.12", True), ("4.40.2", False), ("5.0.0", False)]
)
def test_worker_that_may_hang_on_large_batches_is_reported(version: str, is_old: bool) -> None:
    found = warnings({}, {"proxy_worker.version": worker_module(version)})
    assert [
        f"version {version} may hang forever on a batch of more than 4 MiB" in str(problem) for problem in found
    ] == ([True] if is_old else [])


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"PYTHON_APPLICATIONINSIGHTS_ENABLE_TELEMETRY": "true"}, "PYTHON_APPLICATIONINSIGHTS_ENABLE_TELEMETRY"),
        ({"PYTHON_ENABLE_OPENTELEMETRY": "1"}, "PYTHON_ENABLE_OPENTELEMETRY"),
        ({"FUNCTIONS_WORKER_PROCESS_COUNT": "8"}, "FUNCTIONS_WORKER_PROCESS_COUNT"),
        ({"FUNCTIONS_WORKER_PROCESS_COUNT": "1", "PYTHON_ENABLE_OPENTELEMETRY": "false"}, None),
    ],
)
def test_app_settings_that_double_telemetry_or_processes_are_reported(
    settings: dict[str, str], name: str | None
) -> None:
    """FN30, FN54."""
    assert [warning.path for warning in warnings(settings, {})] == ([] if name is None else [name])


@pytest.mark.parametrize("version", ["", "unknown", "4.41"])
def test_unreadable_version_is_ignored(version: str) -> None:
    assert worker_problem(version) is None


def test_other_hosts_have_no_worker_version() -> None:
    assert warnings({}, {}) == []
