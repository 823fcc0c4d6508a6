"""The example with ActiveMQ and RabbitMQ, which docs/amqp.md links: what its commands print."""

import shlex
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.pattern_pages import WITH_BROKERS, own_app, run_as_shown
from tests.other_brokers.__main__ import KINDS, SETTINGS

pytestmark = pytest.mark.slow

COMMANDS = """\
. build/start/settings
. build/other-brokers/settings
busway send office/orders first second --session anna --id north --property region=north
busway send office/orders third fourth --session anna --id south --property region=south
python -m tests.other_brokers ACTIVEMQ orders
python -m tests.other_brokers RABBITMQ /queues/orders
"""
PRINTED = """\
2 sent to office/orders
2 sent to office/orders
first  message_id=north-1 session_id=anna region=north repl-enqueue-time=… repl-path=office repl-sequence=1
second  message_id=north-2 session_id=anna region=north repl-enqueue-time=… repl-path=office repl-sequence=2
third  message_id=south-1 session_id=anna region=south repl-enqueue-time=… repl-path=office repl-sequence=3
fourth  message_id=south-2 session_id=anna region=south repl-enqueue-time=… repl-path=office repl-sequence=4
"""


def test_the_messages_of_an_example_with_two_brokers_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = [reason for kind in KINDS.values() if (reason := kind.missing())]
    if missing:
        pytest.skip("; ".join(missing))
    shell = own_app(tmp_path)
    brokers = subprocess.Popen(
        ["/bin/sh", "-c", "exec python -m tests.other_brokers"],
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
        run_as_shown(WITH_BROKERS, COMMANDS, PRINTED, shell)
    finally:
        brokers.terminate()
        brokers.communicate(timeout=60)
    assert brokers.returncode == 0
