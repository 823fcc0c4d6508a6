"""`busway-broker` without a configuration."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

ROOT = Path(__file__).parents[2]


def command(*arguments: str, folder: Path = ROOT) -> "subprocess.Popen[str]":
    return subprocess.Popen(  # noqa: S603 - the arguments are the test's own
        [sys.executable, "-m", "local.broker", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=folder,
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


@pytest.mark.parametrize(
    ("arguments", "text", "code"),
    [
        (["--port", "65536"], "'65536' is no port, expected 0 to 65535", 2),
        (["--port", "٣"], "is no port", 2),
        (["--config", "missing\x1b[31m.json"], "missing\\x1b[31m.json: cannot be read: No such file", 1),
        (["--create-entities", "--strict-emulator"], "the emulators create no entities (omit --strict-emulator)", 1),
        (["--data", "/proc/none"], "/proc/none", 1),
    ],
)
def test_a_mistake_is_reported_without_a_traceback(arguments: list[str], text: str, code: int, tmp_path: Path) -> None:
    with command("--port", "0", *arguments, folder=tmp_path) as process:
        output, problems = process.communicate(timeout=60)
    assert (process.returncode, output) == (code, "")
    assert text in problems
    assert "Traceback" not in problems


def test_without_entities_it_says_how_to_get_some() -> None:
    with command("--port", "0") as process:
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(3)]
        process.kill()
    assert "--create-entities" in lines[2]
