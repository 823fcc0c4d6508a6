"""docs/patterns.md and docs/output-bindings.md: their files run, and their commands print what they say."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cli.entities import beside, entities_of
from shared.config.files import load
from shared.config.review import review
from tests.end_to_end.busway_process import PACKAGES, ROOT, BuswayProcess

PAGE = "".join((ROOT / f"docs/{page}.md").read_text(encoding="utf-8") for page in ("patterns", "output-bindings"))
FOLDERS = sorted(path for path in (ROOT / "config/examples").iterdir() if path.is_dir())
SHOWN = dict(re.findall(r"<!-- file: (\S+) -->\n```\w*\n(.*?)```\n", PAGE, re.DOTALL))
RUNS = re.findall(r"<!-- run: (\S+) -->\n```sh\n(.*?)```\n\n<!-- prints -->\n```text\n(.*?)```\n", PAGE, re.DOTALL)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_the_page_shows_the_file_of_each_pattern(folder: Path) -> None:
    (file,) = (folder / "tasks").iterdir()
    assert file.name == f"{folder.name}.yaml"
    assert SHOWN[str(file.relative_to(ROOT))] == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_a_strict_check_of_a_pattern_with_known_entities_has_no_findings(folder: Path) -> None:
    configuration = load(folder)
    entities = entities_of([str(path) for path in beside(folder)], configuration.connections)
    assert [alias for alias, each in configuration.connections.items() if entities.namespace(each) is None] == []
    assert [str(finding) for finding in review(configuration, entities)] == []


def test_every_pattern_is_run() -> None:
    assert {Path(folder).name for folder, _, _ in RUNS} == {folder.name for folder in FOLDERS}
    assert PAGE.count("<!-- run:") == len(RUNS)
    for folder in FOLDERS:
        assert (
            f"busway check --strict config/examples/{folder.name}\nbusway start config/examples/{folder.name}\n" in PAGE
        )


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """Give the repository's app a folder of its own, so that logs and settings of other runs stay as they are."""
    folder = tmp_path / "app"
    folder.mkdir()
    for name in ("function_app.py", "host.json", "config"):
        (folder / name).symlink_to(ROOT / name)
    command = tmp_path / "bin" / "busway"
    command.parent.mkdir()
    command.write_text(
        f'#!/bin/sh\nPYTHONPATH={shlex.quote(PACKAGES)} exec {shlex.quote(sys.executable)} -m cli "$@"\n'
    )
    command.chmod(0o755)
    return folder


@pytest.mark.parametrize(("pattern", "commands", "printed"), RUNS, ids=[Path(run[0]).name for run in RUNS])
def test_commands_print_what_the_page_shows(pattern: str, commands: str, printed: str, app: Path) -> None:
    with BuswayProcess("start", pattern, "--port", "0", folder=app) as running:
        while "Press Ctrl-C to stop everything." not in running.lines(1):
            pass
        environment = {**os.environ, "PATH": f"{app.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        result = subprocess.run(  # noqa: S603 - the commands are the page's own
            ["/bin/sh", "-e", "-c", commands],
            cwd=app,
            env=environment,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert (result.returncode, result.stderr) == (0, "")
        expected = ".*".join(map(re.escape, printed.split("…")))
        assert re.fullmatch(expected, result.stdout), f"expected:\n{printed}\ngot:\n{result.stdout}"
        assert running.stop()[0] == 0
