from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from threading import Thread

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from cli.main import app

RUNNER = CliRunner()

InstallJava = Callable[[str | None], None]


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InstallJava:
    """A function that installs a Java of the given version, or none."""

    def install(version: str | None) -> None:
        binary = tmp_path / "java/bin/java"
        if version is not None:
            binary.parent.mkdir(parents=True)
            binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
            binary.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))

    return install


@pytest.mark.parametrize(
    ("version", "has_packages", "expected"),
    [
        (None, True, ["not found in JAVA_HOME", "OpenJDK 17"]),
        ("11.0.2", True, ["has version 11, but Spark needs 17 or later", "OpenJDK 17"]),
        ("21.0.1", False, ["pyspark: is not installed", "jobs/reconcile/requirements.txt"]),
        ("17.0.15", True, ["nowhere: folder not found"]),
    ],
)
def test_what_is_missing_is_named_and_there_is_no_verdict(
    java: InstallJava,
    monkeypatch: pytest.MonkeyPatch,
    version: str | None,
    has_packages: bool,
    expected: list[str],
) -> None:
    java(version)
    monkeypatch.setattr("importlib.util.find_spec", lambda _: has_packages or None)
    result = RUNNER.invoke(app, ["reconcile", "--journal", "nowhere"])
    assert result.exit_code == 2
    assert [each for each in expected if each not in result.stderr] == []


@pytest.fixture
def java_17(java: InstallJava) -> None:
    java("17.0.15")


class _OtherServer(BaseHTTPRequestHandler):
    """Answers as no storage account does."""

    def do_GET(self) -> None:
        self.send_response(404)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"error": {"reason": "not found"}}')

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.mark.parametrize("command", [["reconcile"], ["delete-raw", "--before", "2026-10-01"]])
@pytest.mark.parametrize(
    ("is_there", "problem"), [(False, "ServiceRequestError"), (True, "the answer is not a storage account's")]
)
@pytest.mark.usefixtures("java_17")
def test_a_container_that_does_not_answer_is_reported_before_spark_starts(
    command: list[str], is_there: bool, problem: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _OtherServer) as server:
        address = f"http://127.0.0.1:{server.server_port}/devstoreaccount1"
        account = "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=a2V5"
        monkeypatch.setenv("AzureWebJobsStorage", f"{account};BlobEndpoint={address}")
        monkeypatch.chdir(tmp_path)
        if is_there:
            Thread(target=server.serve_forever, daemon=True).start()
        else:
            server.server_close()
        result = RUNNER.invoke(app, [*command, "--journal", f"{address}/journal"])
        if is_there:
            server.shutdown()
    assert result.exit_code == 2
    assert f"{address}/journal: {problem}" in result.stderr
    assert not (tmp_path / "build").exists()


def test_the_job_gets_the_options_of_the_command(
    java: InstallJava, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    java("17.0.15")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: True)
    (tmp_path / "journal").mkdir()
    written = tmp_path / "arguments.txt"
    fake = tmp_path / "python"
    fake.write_text(f'#!/bin/sh\nprintf \'%s\\n\' "$@" "$PYSPARK_PYTHON" > {written}\nexit 1\n')
    fake.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(fake))
    places = ["--journal", str(tmp_path / "journal"), "--out", str(tmp_path / "out")]

    def given(*options: str) -> list[str]:
        assert RUNNER.invoke(app, ["reconcile", *options, *places]).exit_code == 1
        return written.read_text().splitlines()

    words = given("--date", "2026-11-20", "--writers-stopped")
    assert words[:4] == ["-m", "busway_reconcile", "--journal", str(tmp_path / "journal")]
    assert words[words.index("--date") + 1] == "2026-11-20"
    assert ("--writers-stopped" in words, words[-1]) == (True, str(fake))
    words = given("--hourly")
    assert ("--hourly" in words, "--date" in words) == (True, False)


@pytest.mark.parametrize("other", [["--date", "2026-11-20"], ["--writers-stopped"]])
def test_hours_are_reconciled_without_a_day_and_while_tasks_run(other: list[str]) -> None:
    result = RUNNER.invoke(app, ["reconcile", "--hourly", *other])
    assert result.exit_code == 2
    assert f"--hourly and {other[0]}: exclude each other" in result.stderr


@pytest.mark.parametrize(("command", "module"), [("reconcile", "__main__"), ("delete-raw", "delete_raw")])
def test_the_command_and_the_job_have_the_same_options(command: str, module: str) -> None:
    group = get_command(app)
    context = group.make_context("busway", ["--help"], resilient_parsing=True)
    found = group.commands[command].make_context(command, [], context, resilient_parsing=True).command  # type: ignore[attr-defined]
    own = {option for param in found.params for option in param.opts} - {"--config"}
    job = import_module(f"busway_reconcile.{module}")._parser()
    assert own <= {option for action in job._actions for option in action.option_strings}
