"""
The commands with an Azure identity and no connection string, as where `disableLocalAuth` is true.

The SDKs are unmodified: they get their token from a managed identity's endpoint over HTTP, connect to the port of Azure
with TLS, and hand the token over. Only the endpoint, the namespace and the authority that they trust are of this
machine: they look for authorities in the package certifi alone.
"""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import certifi
import pytest
from typer.testing import CliRunner, Result

from busway_broker.admin.certificate import server_context
from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig
from busway_broker.thread import RunningBroker
from cli.local_services.kafka import KafkaCluster
from cli.main import app
from tests.end_to_end.tls_port import ADDRESS, TlsPort
from tests.forwarding import fill, keyed, new_topic
from tests.vault import Vault

type Run = Callable[..., Result]

CONNECTIONS = """
west: {kind: service-bus, setting: WEST}
hubs: {kind: event-hubs, setting: HUBS}
stream: {kind: kafka, setting: STREAM}
"""
TASK = "task: copy\nsource: {connection: west, queue: orders}\nroutes: [{target: {connection: west, queue: copies}}]\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("identity")
    (folder / "tasks").mkdir()
    (folder / "connections.yaml").write_text(CONNECTIONS)
    (folder / "tasks" / "copy.yaml").write_text(TASK)
    site = NamespaceConfig(
        name="west",
        queues=(QueueConfig(name="orders"), QueueConfig(name="copies")),
        hubs=(HubConfig(name="events"),),
    )
    with (
        Vault(folder) as identity,
        RunningBroker([site]) as broker,
        TlsPort(server_context(folder), broker.port("west")),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(certifi, "where", lambda: identity.authority)
        settings = {
            "WEST__fullyQualifiedNamespace": ADDRESS,
            "HUBS__fullyQualifiedNamespace": ADDRESS,
            **identity.identity(),
        }

        def run_command(*arguments: str, environment: dict[str, str | None] | None = None) -> Result:
            given = {**settings, **(environment or {})}
            return CliRunner().invoke(app, [*arguments, "--config", str(folder)], env=given)

        yield run_command


def test_messages_are_sent_tried_and_received_without_a_connection_string(run: Run, tmp_path: Path) -> None:
    sent = run("send", "west/orders", "two bicycles", "--id", "a", "--property", "priority=7")
    assert (sent.exit_code, sent.output) == (0, "1 sent to west/orders\n")
    tried = run("try", "copy", "--peek", "1", "--json", "--save", str(tmp_path / "saved.jsonl"))
    assert tried.exit_code == 0, tried.output
    assert json.loads(tried.output)["ends"][0]["outcome"] == "sent"
    seen = run("status", "copy", "--json")
    assert json.loads(seen.stdout)["tasks"][0]["backlog"] == 1, seen.output
    received = run("receive", "west/orders")
    assert (received.exit_code, received.output) == (0, "two bicycles  message_id=a priority=7\n")


def test_events_are_sent_and_received_without_a_connection_string(run: Run) -> None:
    sent = run("send", "hubs/events", "reading", "--id", "r")
    assert (sent.exit_code, sent.output) == (0, "1 sent to hubs/events\n")
    received = run("receive", "hubs/events")
    assert received.exit_code == 0
    assert received.output.startswith("reading  partition="), received.output


def test_records_of_kafka_are_forwarded_to_a_hub_without_a_connection_string(run: Run, tmp_path: Path) -> None:
    with KafkaCluster() as cluster:
        topic, stream = new_topic(cluster), f"kafka://{cluster.servers}"
        asyncio.run(fill(stream, topic, keyed(3)))
        options = ["--group", "g", "--idle", "0.2", "--rejects", str(tmp_path / "rejects.jsonl")]
        forwarded = run("forward", f"stream/{topic}", "hubs/events", *options, environment={"STREAM": stream})
    assert (forwarded.exit_code, forwarded.output) == (0, f"3 forwarded from stream/{topic} to hubs/events\n")


def test_without_a_token_the_command_ends_with_one_line_that_says_what_to_do(run: Run) -> None:
    nobody: dict[str, str | None] = {"IDENTITY_HEADER": "wrong", "AZURE_TOKEN_CREDENTIALS": "ManagedIdentityCredential"}
    nobody["STREAM__fullyQualifiedNamespace"] = ADDRESS
    journal = "https://account.blob.core.windows.net/journal"
    for place, command in (
        ("west/orders", ["send", "west/orders", "x"]),
        ("hubs/events", ["send", "hubs/events", "x"]),
        ("stream/readings", ["receive", "stream/readings"]),
        ("stream/readings", ["forward", "stream/readings", "hubs/events", "--group", "g"]),
        (journal, ["trace", "m", "--journal", journal]),
    ):
        refused = run(*command, environment=nobody)
        assert refused.exit_code == (2 if place == journal else 1), place
        assert len(refused.stderr.splitlines()) == 1, refused.stderr
        assert refused.stderr.startswith(f"{place}: not authorized: "), refused.stderr


def test_without_a_setting_both_forms_are_named(run: Run) -> None:
    refused = run("send", "west/orders", "x", environment={"WEST__fullyQualifiedNamespace": None})
    assert refused.exit_code == 1
    assert "set WEST to a connection string or WEST__fullyQualifiedNamespace" in refused.output
