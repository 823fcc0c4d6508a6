"""clients/README.md: its examples run as printed, in processes of their own, and print what it says they print."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.thread import RunningBroker
from tests.clients.relay.local_relay import LocalRelay, RunningRelays

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "clients/README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"<!-- run: (\S+) -->\n```python\n(.*?)```\n\n```text\n(.*?)```\n", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def places() -> Iterator[Any]:
    queues = (
        QueueConfig(name="orders", requires_session=True),
        QueueConfig(name="invoices"),
    )
    with RunningBroker([NamespaceConfig(name=name, queues=queues) for name in ("west", "east")]) as broker:
        yield {name.upper(): broker.connection_string(name) for name in ("west", "east")}


@pytest.fixture(scope="module")
def relays() -> Iterator[Any]:
    keys = {"both": ("c2VjcmV0IG9mIGJvdGg=", {"Listen", "Send"})}
    paths = {"RELAY_WEST": "primary-service", "RELAY_EAST": "secondary-service"}
    each = {name: LocalRelay(keys=keys, paths={path}) for name, path in paths.items()}
    with RunningRelays([*each.values()]), pytest.MonkeyPatch.context() as environment:
        for name, relay in each.items():
            environment.setenv(name, relay.connection_string(paths[name], "both"))
        yield


def test_every_example_is_run() -> None:
    assert PAGE.count("```python") == len(EXAMPLES) == PAGE.count("<!-- run:") == 5


@pytest.mark.usefixtures("relays")
@pytest.mark.parametrize(("name", "example", "printed"), EXAMPLES, ids=[example[0] for example in EXAMPLES])
def test_an_example_prints_what_the_page_says(
    name: str, example: Any, printed: Any, places: Any, tmp_path: Path
) -> None:
    if name == "receiver":
        for place in places.values():
            with (
                ServiceBusClient.from_connection_string(place) as client,
                client.get_queue_sender("invoices") as sender,
            ):
                sender.send_messages(ServiceBusMessage("one invoice", message_id="invoice-1"))
    (tmp_path / "example.py").write_text(example, encoding="utf-8")
    environment = {**os.environ, **places, "PYTHONPATH": str(ROOT / "clients")}
    done = subprocess.run(
        [sys.executable, "example.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", printed)
