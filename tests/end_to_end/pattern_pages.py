"""docs/patterns/ and the pages of other ends: the files and commands that they show."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from busway import PACKAGES
from tests.end_to_end.busway_process import ROOT, BuswayProcess

_OF_ENDS = [
    ROOT / f"docs/{page}.md"
    for page in ("output-bindings", "amqp", "kafka", "from-kafka", "storage-queues", "event-grid")
]
PAGE = "".join(page.read_text(encoding="utf-8") for page in (*sorted((ROOT / "docs/patterns").glob("*.md")), *_OF_ENDS))
FOLDERS = sorted(path for path in (ROOT / "config/examples").iterdir() if path.is_dir())
SHOWN = dict(re.findall(r"<!-- file: (\S+) -->\n```\w*\n(.*?)```\n", PAGE, re.DOTALL))
RUNS: list[tuple[str, str, str]] = re.findall(
    r"<!-- run: (\S+) -->\n```sh\n(.*?)```\n\n<!-- prints -->\n```text\n(.*?)```\n", PAGE, re.DOTALL
)

# A page with several sites, one with rejects, and one for each other kind of target. `make faults` runs those of the
# others, whose tasks `test_patterns_*` and the fidelity table run with clients of the SDKs.
_QUICK = {f"config/examples/{each}" for each in ("all-active", "validation", "hub-to-kafka", "queue-to-amqp")}
# `make other-brokers` runs this one.
_WITH_BROKERS = "config/examples/queue-to-brokers"
SLOW_RUNS = [run for run in RUNS if run[0] not in {*_QUICK, _WITH_BROKERS}]
QUICK_RUNS = [run for run in RUNS if run[0] in _QUICK]
(RUN_WITH_BROKERS,) = (run for run in RUNS if run[0] == _WITH_BROKERS)


def own_app(folder: Path) -> Path:
    """Give the repository's app a folder of its own, so that logs and settings of other runs stay as they are."""
    app = folder / "app"
    app.mkdir()
    for name in ("function_app.py", "host.json", "config"):
        (app / name).symlink_to(ROOT / name)
    (folder / "bin").mkdir()
    for name, arguments in (("busway", "-m cli "), ("python", "")):
        command = folder / "bin" / name
        command.write_text(
            f'#!/bin/sh\nPYTHONPATH={shlex.quote(PACKAGES)} exec {shlex.quote(sys.executable)} {arguments}"$@"\n'
        )
        command.chmod(0o755)
    return app


def with_commands(app: Path) -> dict[str, str]:
    """Return the environment in which the commands of a page find those of `own_app`."""
    return {**os.environ, "PATH": f"{app.parent / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def run_as_shown(pattern: str, commands: str, printed: str, app: Path) -> None:
    """Run the commands of a page beside `busway start`, and compare what they print with what the page shows."""
    with BuswayProcess("start", pattern, "--port", "0", folder=app) as running:
        while "Press Ctrl-C to stop everything." not in running.lines(1):
            pass
        result = subprocess.run(  # noqa: S603 - the commands are the page's own
            ["/bin/sh", "-e", "-c", commands],
            cwd=app,
            env=with_commands(app),
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert (result.returncode, result.stderr) == (0, "")
        expected = ".*".join(map(re.escape, printed.split("…")))
        assert re.fullmatch(expected, result.stdout), f"expected:\n{printed}\ngot:\n{result.stdout}"
        assert running.stop()[0] == 0
