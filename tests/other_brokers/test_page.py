"""The example of docs/amqp.md with ActiveMQ and RabbitMQ: its commands, as the page shows them."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.pattern_pages import PAGE, RUN_WITH_BROKERS, own_app, run_as_shown
from tests.other_brokers.__main__ import KINDS, SETTINGS

pytestmark = pytest.mark.slow


def test_the_commands_print_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = [reason for kind in KINDS.values() if (reason := kind.missing())]
    if missing:
        pytest.skip("; ".join(missing))
    (block,) = re.findall(r"<!-- brokers -->\n```sh\n(.*?)```", PAGE, re.DOTALL)
    fetch, start = block.splitlines()
    assert fetch == "tools/other-brokers"
    shell = own_app(tmp_path)
    brokers = subprocess.Popen(  # noqa: S603 - the command is the page's own
        ["/bin/sh", "-c", f"exec {start}"],
        cwd=shell.folder,
        env=shell.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert brokers.stdout is not None
        assert str(SETTINGS) in brokers.stdout.readline()
        for line in (shell.folder / SETTINGS).read_text().splitlines():
            monkeypatch.setenv(*shlex.split(line)[1].split("=", 1))
        run_as_shown(*RUN_WITH_BROKERS, shell)
    finally:
        brokers.terminate()
        brokers.communicate(timeout=60)
    assert brokers.returncode == 0
