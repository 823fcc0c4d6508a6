"""docs/checks.md: what `busway try` is said to print is what it prints."""

import re
import shutil
from pathlib import Path

from tests.end_to_end.busway_process import ROOT
from tests.end_to_end.shell import Shell

PAGE = (ROOT / "docs/checks.md").read_text(encoding="utf-8")


def test_the_dry_run_prints_what_the_page_shows(tmp_path: Path) -> None:
    found = re.search(r"<!-- try -->\n```sh\n(.*?)```\n\n<!-- prints -->\n```text\n(.*?)```\n", PAGE, re.DOTALL)
    assert found is not None
    commands, printed = found.groups()
    shutil.copytree(ROOT / "config/examples", tmp_path / "config/examples")
    # The last command fails on purpose.
    done = Shell(tmp_path).run(commands)
    assert (done.stdout, done.stderr, done.returncode) == (printed, "", 1)
