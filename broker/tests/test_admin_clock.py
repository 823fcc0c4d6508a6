"""The clock over HTTP, which programs in any language may advance, and the commands of the README of the wheel."""

import json
import re
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from azure.servicebus import ServiceBusClient, ServiceBusMessage

ROOT = Path(__file__).parents[2]
COMMANDS = re.findall(r"^curl .*", (ROOT / "broker/README.md").read_text(encoding="utf-8"), re.MULTILINE)


def ask(address: str, seconds: float | None = None) -> Any:
    body = None if seconds is None else json.dumps({"advance": seconds}).encode()
    request = Request(f"{address}/$busway/clock", body, {"Content-Type": "application/json"})  # noqa: S310 - the broker's own address
    with urlopen(request, timeout=60) as answer:  # noqa: S310 - likewise
        return json.load(answer)


def check_commands(address: str) -> None:
    """Run the commands of the README in their order, of which the last one resets everything."""
    answers = []
    for command in COMMANDS:
        text = command.replace("http://localhost:5300", address)
        done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True)  # noqa: S603, S607 - the page's command
        answers.append(json.loads(done.stdout))
    health, sent, (message, *_), counts, (fault,), clock, reset = answers
    assert (health, sent, reset) == ({"status": "healthy"}, {}, {})
    assert (fault["effect"], clock["advances_by_itself"]) == ("throttle", False)
    assert counts["orders"]["active"] > 0
    assert "body" in message


def test_the_clock_of_all_namespaces_stands_still_until_a_request_advances_it() -> None:
    command = [sys.executable, "-m", "busway_broker", "--manual-clock", "--create-entities", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own module
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            string = process.stdout.readline().split(maxsplit=2)[2].strip()
            first, second = (process.stderr.readline().split()[2] for _ in range(2))
            before = ask(first)
            assert ask(second) == before
            assert not before["advances_by_itself"]
            with (
                ServiceBusClient.from_connection_string(string) as client,
                client.get_queue_sender("orders") as sender,
                client.get_queue_receiver("orders") as receiver,
            ):
                due = datetime.fromisoformat(before["now"]) + timedelta(hours=1)
                sender.schedule_messages(ServiceBusMessage("later"), due)
                sender.send_messages(ServiceBusMessage("now", time_to_live=timedelta(minutes=59)))
                assert [str(message) for message in receiver.peek_messages(5)] == ["later", "now"]
                after = ask(second, 3600)
                assert datetime.fromisoformat(after["now"]) == due
                assert [str(message) for message in receiver.receive_messages(5, max_wait_time=10)] == ["later"]
            check_commands(first)
        finally:
            process.terminate()
            process.communicate(timeout=60)
