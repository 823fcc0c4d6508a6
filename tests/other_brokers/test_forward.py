"""`busway forward` from Kafka itself to a hub of the local broker: killed in the middle, and a second member."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from copy import replace
from pathlib import Path
from types import SimpleNamespace

import certifi
import pytest
from confluent_kafka import Producer, TopicPartition
from typer.testing import CliRunner

import cli.kafka_consumer
from busway import PACKAGES
from busway_broker.admin.certificate import server_context
from busway_broker.config import HubConfig, NamespaceConfig
from busway_broker.thread import RunningBroker
from cli.kafka_consumer import GroupReader
from cli.main import app
from tests.end_to_end.tls_port import ADDRESS, TlsPort
from tests.forwarding import arrived, by_key, fill, keyed, until
from tests.other_brokers.kafka import Kafka
from tests.vault import Vault, token

pytestmark = pytest.mark.slow

MESSAGES = 5_000
_SECONDS = 120


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    missing = Kafka.missing()
    if missing is not None:
        pytest.skip(missing)
    broker = Kafka(tmp_path_factory.mktemp("broker"), token_port=9093)
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with RunningBroker([NamespaceConfig(name="plant", hubs=(HubConfig(name="returned", partition_count=2),))]) as it:
        yield it


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "connections.yaml").write_text(
        "plant: {kind: event-hubs, setting: PLANT}\nstream: {kind: kafka, setting: STREAM}\n"
    )
    (tmp_path / "tasks/task.yaml").write_text(
        "task: to-kafka\n"
        "source: {connection: plant, hub: readings}\n"
        "routes: [{target: {connection: stream, topic: readings}}]\n"
        "rejects: {connection: stream, topic: rejected}\n"
    )
    return tmp_path


@pytest.fixture
def start(kafka: Kafka, broker: RunningBroker, folder: Path) -> Callable[[str], subprocess.Popen[str]]:
    """Return what starts `busway forward` for a topic."""
    settings = {"PLANT": broker.connection_string("plant"), "STREAM": kafka.url, "BUSWAY_CONFIG": str(folder)}

    def started(topic: str) -> subprocess.Popen[str]:
        command = ["forward", f"stream/{topic}", "plant/returned", "--group", topic, "--idle", "5"]
        return subprocess.Popen(  # noqa: S603 - fixed arguments
            [sys.executable, "-m", "cli", *command],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": PACKAGES, **settings},
            stdout=subprocess.PIPE,
            text=True,
        )

    return started


def assert_nothing_lost_or_reordered(broker: RunningBroker) -> None:
    found = arrived(broker)
    # What comes again was not committed; each comes first in its place.
    assert {key: list(dict.fromkeys(numbers)) for key, numbers in found.items()} == by_key(MESSAGES)


def test_a_kill_in_the_middle_loses_nothing_and_keeps_the_order_of_keys(
    kafka: Kafka, broker: RunningBroker, start: Callable[[str], subprocess.Popen[str]]
) -> None:
    topic = kafka.create("killed-forward")
    asyncio.run(fill(kafka.url, topic, keyed(MESSAGES)))
    first = start(topic)
    until(lambda: arrived(broker))
    first.kill()
    first.communicate()
    assert sum(map(len, arrived(broker).values())) < MESSAGES, "all were sent before the kill"
    second = start(topic)
    text, _ = second.communicate(timeout=_SECONDS)
    assert second.returncode == 0
    assert f"forwarded from stream/{topic} to plant/returned" in text
    assert_nothing_lost_or_reordered(broker)


def test_a_second_process_takes_partitions_and_nothing_is_lost(
    kafka: Kafka, broker: RunningBroker, start: Callable[[str], subprocess.Popen[str]]
) -> None:
    topic = kafka.create("shared-forward")
    asyncio.run(fill(kafka.url, topic, keyed(MESSAGES)[: MESSAGES // 2]))
    first = start(topic)
    until(lambda: arrived(broker))
    second = start(topic)
    asyncio.run(fill(kafka.url, topic, keyed(MESSAGES)[MESSAGES // 2 :]))
    for each in (first, second):
        each.communicate(timeout=_SECONDS)
        assert each.returncode == 0
    assert_nothing_lost_or_reordered(broker)


def test_markers_of_transactions_that_retention_deletes_are_no_loss(
    kafka: Kafka, broker: RunningBroker, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAM", kafka.url)
    topic = kafka.create("transactions", partitions=1)

    def transaction(name: str, *, commits: bool) -> None:
        producer = Producer({**kafka.options, "transactional.id": name})
        producer.init_transactions(_SECONDS)
        producer.begin_transaction()
        producer.produce(topic, b"1", key=b"k0", partition=0)
        producer.flush()
        _ = producer.commit_transaction(_SECONDS) if commits else producer.abort_transaction(_SECONDS)

    def forward() -> tuple[str, list[str]]:
        options = ["--group", topic, "--idle", "1", "--rejects", str(folder / "rejects.jsonl")]
        settings = {"PLANT": broker.connection_string("plant"), "BUSWAY_CONFIG": str(folder)}
        result = CliRunner().invoke(app, ["forward", f"stream/{topic}", "plant/returned", *options], env=settings)
        *reports, last = result.output.splitlines()
        return last.partition(" ")[0], reports

    def delete_everything() -> None:
        end = TopicPartition(topic, 0, -1)
        kafka.admin.delete_records([end])[end].result(_SECONDS)

    transaction("committed", commits=True)
    assert forward() == ("1", [])
    delete_everything()
    transaction("again", commits=True)
    assert forward() == ("1", [])
    transaction("aborted", commits=False)
    assert forward() == ("0", [])
    delete_everything()
    assert forward() == ("0", [])
    transaction("unread", commits=True)
    delete_everything()
    count, reports = forward()
    assert count == "0"
    assert ["were deleted before they were read" in report for report in reports] == [True]


def test_an_identity_reads_the_topic_and_sends_to_the_hub(
    kafka: Kafka, broker: RunningBroker, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.create("identity-forward")
    asyncio.run(fill(kafka.url, topic, keyed(100)))
    with Vault(folder) as identity, TlsPort(server_context(folder), broker.port("plant")):
        monkeypatch.setattr(certifi, "where", lambda: identity.authority)
        settings = {f"{name}__fullyQualifiedNamespace": ADDRESS for name in ("PLANT", "STREAM")}
        settings |= {**identity.identity(), "SSL_CERT_FILE": str(kafka.authority), "BUSWAY_CONFIG": str(folder)}
        options = ["--group", topic, "--idle", "1", "--rejects", str(folder / "rejects.jsonl")]
        result = CliRunner().invoke(app, ["forward", f"stream/{topic}", "plant/returned", *options], env=settings)
    assert (result.exit_code, result.output) == (0, f"100 forwarded from stream/{topic} to plant/returned\n")
    assert arrived(broker) == by_key(100)


def test_an_identity_without_tokens_for_a_while_holds_the_reader_and_does_not_end_it(
    kafka: Kafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, reports, is_down = kafka.create("without-tokens"), list[str](), False

    class Identity:
        """Its tokens end soon; the client asks for the next one at four fifths of that time."""

        def get_token(self, scope: str) -> SimpleNamespace:
            if is_down:
                raise RuntimeError("no identity here")
            return SimpleNamespace(token=token(scope, seconds=8), expires_on=time.time() + 8)

    monkeypatch.setattr(cli.kafka_consumer, "credential", Identity)
    monkeypatch.setenv("SSL_CERT_FILE", str(kafka.authority))
    reader = GroupReader("stream", "S", {"S__fullyQualifiedNamespace": ADDRESS}, topic, topic, report=reports.append)
    found = list[int]()

    def taken(count: int) -> bool:
        found.extend(each.offset() for each in reader.take(500, 0.2))
        return len(set(found)) >= count

    asyncio.run(fill(kafka.url, topic, [replace(message, partition_key="k") for message in keyed(20)]))
    until(lambda: taken(20))
    is_down = True
    until(lambda: [taken(0), reports][1])
    asyncio.run(fill(kafka.url, topic, [replace(message, partition_key="k") for message in keyed(20)]))
    end = time.monotonic() + 5
    while time.monotonic() < end:
        taken(0)
    is_down = False
    until(lambda: taken(40))
    reader.close()
    assert reports[0] == "stream: waits: the identity has no token: no identity here"
