"""`busway-broker` without a configuration."""

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway_broker.__main__ import main

ROOT = Path(__file__).parents[2]


def command(*arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(  # noqa: S603 - the arguments are the test's own
        [sys.executable, "-m", "busway_broker", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
    )


@pytest.fixture
def process() -> "Iterator[subprocess.Popen[str]]":
    with command("--port", "0", "--create-entities") as process:
        yield process
        process.kill()


def test_it_serves_two_namespaces_and_their_administration(process: "subprocess.Popen[str]") -> None:
    assert process.stdout is not None
    assert process.stderr is not None
    ready = [process.stdout.readline().split(maxsplit=2) for _ in range(2)]
    admin = [process.stderr.readline().split() for _ in range(2)]
    assert [line[:2] for line in ready] == [["ready", "service-bus"], ["ready", "event-hubs"]]
    assert [line[:2] for line in admin] == [["admin", "service-bus"], ["admin", "event-hubs"]]
    with (
        ServiceBusClient.from_connection_string(ready[0][2].strip()) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("hello"))
    with urlopen(f"{admin[0][2]}/$busway/counts", timeout=60) as answer:  # noqa: S310 - the broker's own address
        assert b'"orders": {"active": 1' in answer.read()
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


# The SDK does not close the socket of a connection that the service has closed; here it is collected.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_links_and_connections_that_are_not_used_end_when_its_options_say() -> None:
    # A connection has a fifth of the second time for its first link.
    with command("--port", "0", "--create-entities", "--link-idle", "0.3", "--connection-idle", "5") as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            text = process.stdout.readline().split(maxsplit=2)[2].strip()
            connections = f"{process.stderr.readline().split()[2]}/$busway/connections"
            with ServiceBusClient.from_connection_string(text) as client, client.get_queue_sender("orders") as sender:
                sender.send_messages(ServiceBusMessage("hello"))
                end = time.monotonic() + 60
                while urlopen(connections, timeout=60).read() != b"[]":  # noqa: S310 - the broker's own address
                    assert time.monotonic() < end
                    time.sleep(0.1)
        finally:
            process.kill()
    del client, sender
    gc.collect()


@pytest.mark.parametrize(
    ("arguments", "text", "code"),
    [
        (["--port", "65536"], "'65536' is no port, expected 0 to 65535", 2),
        (["--port", "٣"], "is no port", 2),
        (["--link-idle", "0"], "'0' is no time, expected seconds, up to 1e+09", 2),
        (["--config", "missing\x1b[31m.json"], "missing\\x1b[31m.json: cannot be read: No such file", 1),
        (["--create-entities", "--strict-emulator"], "the emulators create no entities (omit --strict-emulator)", 1),
        (["--data", "/proc/none"], "/proc/none", 1),
    ],
)
def test_a_mistake_is_reported_without_a_traceback(
    arguments: list[str],
    text: str,
    code: int,
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        ended: object = main(["--port", "0", *arguments])
    except SystemExit as error:
        ended = error.code
    output, problems = capsys.readouterr()
    assert (ended, output) == (code, "")
    assert text in problems


def test_without_entities_it_says_how_to_get_some() -> None:
    with command("--port", "0") as process:
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(3)]
        process.kill()
    assert "--create-entities" in lines[2]
