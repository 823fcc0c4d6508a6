"""docs/patterns/ and the pages of other ends: the files and commands that they show."""

import re
from pathlib import Path

from tests.end_to_end.busway_process import ROOT, BuswayProcess
from tests.end_to_end.shell import Shell, assert_shown

_OF_ENDS = [
    ROOT / f"docs/{page}.md"
    for page in ("output-bindings", "amqp", "kafka", "from-kafka", "storage-queues", "event-grid")
]
PAGE = "".join(page.read_text(encoding="utf-8") for page in (*sorted((ROOT / "docs/patterns").glob("*.md")), *_OF_ENDS))
FOLDERS = sorted(path for path in (ROOT / "config/examples").iterdir() if path.is_dir())
SHOWN = dict(re.findall(r"<!-- file: (\S+) -->\n```\w*\n(.*?)```\n", PAGE, re.DOTALL))
RUNS: list[tuple[str, str, str]] = re.findall(
    r"<!-- run: (\S+) -->\n```sh\n(.*?)```\n\n```text\n(.*?)```\n", PAGE, re.DOTALL
)

# `make other-brokers` runs this one, which a page only links.
WITH_BROKERS = "config/examples/queue-to-brokers"


def own_app(folder: Path) -> Shell:
    """Give the repository's app a folder of its own, so that logs and settings of other runs stay as they are."""
    app = folder / "app"
    app.mkdir()
    for name in ("function_app.py", "host.json", "config"):
        (app / name).symlink_to(ROOT / name)
    return Shell(app, folder / "bin")


def run_as_shown(pattern: str, commands: str, printed: str, shell: Shell) -> None:
    """Run the commands of a page beside `busway start`, and compare what they print with what the page shows."""
    with BuswayProcess("start", pattern, "--port", "0", folder=shell.folder) as running:
        while "Press Ctrl-C to stop everything." not in running.lines(1):
            pass
        result = shell.run(commands)
        assert (result.returncode, result.stderr) == (0, "")
        assert_shown(result.stdout, printed)
        assert running.stop()[0] == 0
