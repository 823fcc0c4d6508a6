"""docs/dry-run.md: what `busway try` is said to print is what it prints."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from tests.end_to_end.busway_process import ROOT

PAGE = (ROOT / "docs/dry-run.md").read_text(encoding="utf-8")


def test_the_dry_run_prints_what_the_page_shows(tmp_path: Path) -> None:
    found = re.search(r"<!-- try -->\n```sh\n(.*?)```\n\n<!-- prints -->\n```text\n(.*?)```\n", PAGE, re.DOTALL)
    assert found is not None
    commands, printed = found.groups()
    shutil.copytree(ROOT / "config/examples", tmp_path / "config/examples")
    busway = f'busway() {{ PYTHONPATH={shlex.quote(str(ROOT))} {shlex.quote(sys.executable)} -m cli "$@"; }}\n'
    done = subprocess.run(  # noqa: S603 - the page's own commands
        ["bash", "-c", busway + commands],  # noqa: S607 - the shell of a reader
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr, done.returncode) == (printed, "", 1)
