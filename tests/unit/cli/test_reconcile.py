from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app

RUNNER = CliRunner()


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A Java of the version that is asked for, or none."""

    def install(version: str | None) -> None:
        binary = tmp_path / "java/bin/java"
        if version is not None:
            binary.parent.mkdir(parents=True)
            binary.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
            binary.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))

    return install


@pytest.mark.parametrize(
    ("version", "sentence"),
    [(None, "is not in JAVA_HOME"), ("11.0.2", "has version 11, Spark needs 17 or later")],
)
def test_without_java_nothing_is_decided(java, version: str | None, sentence: str) -> None:
    java(version)
    result = RUNNER.invoke(app, ["reconcile"])
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert "OpenJDK 17" in result.stderr


def test_a_package_that_is_missing_is_named(java, monkeypatch: pytest.MonkeyPatch) -> None:
    java("21.0.1")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    result = RUNNER.invoke(app, ["reconcile"])
    assert result.exit_code == 2
    assert "pyspark: is not installed" in result.stderr
    assert "jobs/reconcile/requirements.txt" in result.stderr


def test_a_journal_that_is_not_there_is_no_clean_one(java, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java("17.0.15")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: True)
    result = RUNNER.invoke(app, ["reconcile", "--journal", str(tmp_path / "nowhere")])
    assert result.exit_code == 2
    assert "nowhere: is no folder" in result.stderr


def test_the_job_is_told_what_the_command_was(java, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java("17.0.15")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: True)
    (tmp_path / "journal").mkdir()
    told = tmp_path / "told.json"
    fake = tmp_path / "python"
    fake.write_text(
        "#!/bin/sh\nprintf '%s\\n' \"$@\" > " + str(told) + '\necho "$PYSPARK_PYTHON" >> ' + str(told) + "\nexit 1\n"
    )
    fake.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(fake))
    options = [
        "--date",
        "2026-11-20",
        "--journal",
        str(tmp_path / "journal"),
        "--out",
        str(tmp_path / "out"),
        "--stopped",
    ]
    result = RUNNER.invoke(app, ["reconcile", *options])
    assert result.exit_code == 1
    words = told.read_text().splitlines()
    assert words[:4] == ["-m", "jobs.reconcile", "--journal", str(tmp_path / "journal")]
    assert words[words.index("--date") + 1] == "2026-11-20"
    assert "--writers-stopped" in words
    assert words[-1] == str(fake)
