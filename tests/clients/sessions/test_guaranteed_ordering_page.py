"""docs/guaranteed-ordering.md: its commands print what it says they print."""

import ast
import builtins
import importlib
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.busway_process import ROOT, BuswayProcess

pytestmark = pytest.mark.long

PAGE = (ROOT / "docs/guaranteed-ordering.md").read_text(encoding="utf-8")
[(FOLDER, COMMANDS, PRINTED)] = re.findall(
    r"<!-- run: (\S+) -->\n```sh\n(.*?)```\n.*?<!-- prints -->\n```text\n(.*?)```\n", PAGE, re.DOTALL
)


@pytest.fixture
def app(tmp_path: Path) -> Any:
    """Give the app and the examples a folder of their own, with `busway` and `python` on the path."""
    folder = tmp_path / "app"
    folder.mkdir()
    for name in ("function_app.py", "host.json", "config", "clients"):
        (folder / name).symlink_to(ROOT / name)
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, arguments in (("busway", "-m cli"), ("python", "")):
        path = f"PYTHONPATH={shlex.quote(str(ROOT))}:$PYTHONPATH"
        (commands / name).write_text(f'#!/bin/sh\n{path} exec {shlex.quote(sys.executable)} {arguments} "$@"\n')
        (commands / name).chmod(0o755)
    return folder


def test_its_program_imports_what_it_uses() -> None:
    [program] = re.findall(r"## Use it\n\n```python\n(.*?)```\n", PAGE, re.DOTALL)
    tree = ast.parse(program)
    known = {**vars(builtins)}
    for node in tree.body:
        if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef):
            exec(ast.unparse(node), known)  # noqa: S102 - the page's own
    assigned = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    arguments = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    assert used <= known.keys() | assigned | arguments


def test_report_before_anything_was_applied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(ROOT / "clients")
    importlib.import_module("examples.shipments.report").tell()
    assert capsys.readouterr().out.startswith("statuses applied: 0, of 0 shipments with 0 each\napplied twice: 0\n")


def test_a_consumer_is_killed_and_each_status_is_applied_once_and_in_order(app: Path) -> None:
    assert f"```\nbusway start {FOLDER}\n```" in PAGE
    with BuswayProcess("start", FOLDER, "--port", "0", folder=app) as running:
        while "Press Ctrl-C to stop everything." not in running.lines(1):
            pass
        path = f"{app.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"
        result = subprocess.run(  # noqa: S603 - the commands are the page's own
            ["/bin/sh", "-e", "-c", COMMANDS],
            cwd=app,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        logs = "".join(f"{log.name}:\n{log.read_text()[-2000:]}\n" for log in (app / "build").glob("consumer-*.log"))
        assert (result.returncode, result.stderr) == (0, ""), logs
        expected = ".*".join(map(re.escape, PRINTED.split("…")))
        assert re.fullmatch(expected, result.stdout), f"expected:\n{PRINTED}\ngot:\n{result.stdout}\n{logs}"
        # It was killed in the middle: both had part, and east went on with what west had begun.
        [(west, east)] = re.findall(r"applied in west: (\d+), in east: (\d+)", result.stdout)
        [moved] = re.findall(r"begun in west and finished in east: (\d+) shipments", result.stdout)
        assert int(west) >= 20
        assert int(east) > 0
        assert int(moved) > 0
        assert running.stop()[0] == 0
