"""
The host is killed ten times while it copies 20,000 messages, and the nightly job reconciles them.

Each kill comes after messages are sent and on record, and before they are settled: those are sent again.

The test does not count messages at the target, because the job does. It takes minutes, so only `make faults` runs it.
"""

import gzip
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.storage.blob import ContainerClient

from busway_broker.config import NamespaceConfig, SubscriptionConfig, TopicConfig
from busway_broker.faults import Effect, Fault, Operation
from busway_broker.thread import NamespaceFaults, RunningBroker
from cli.spark import check_spark, run_job
from tests.azurite import running_azurite
from tests.end_to_end.host_process import ROOT, HostProcess

KILLS = 10
MESSAGES = 20_000

TASKS = """\
task: copy
source: {connection: west, topic: orders, subscription: replication}
routes: [{target: {connection: east, topic: orders}}]
---
task: watch-west
source: {connection: west, topic: orders, subscription: journal}
tap: {of: copy, side: source}
---
task: watch-east
source: {connection: east, topic: orders, subscription: journal}
tap: {of: copy, side: target}
"""
# Locks end soon after a kill, and there are more deliveries than kills.
_LOCKED = SubscriptionConfig(name="", lock_duration=timedelta(seconds=5), max_delivery_count=100)
WEST = NamespaceConfig(
    name="west",
    topics=(
        TopicConfig(
            # Numbers that name a partition and do not rise.
            name="orders",
            enable_partitioning=True,
            subscriptions=tuple(replace(_LOCKED, name=each) for each in ("replication", "journal")),
        ),
    ),
)
# What the host has sent and put on record is not settled.
REFUSED = Fault(effect=Effect.THROTTLE, operations=frozenset({Operation.SETTLE}), entity="orders/*/replication")
# Messages that were sent but not settled are sent again after a kill: the target must detect them.
EAST = NamespaceConfig(
    name="east",
    topics=(
        TopicConfig(
            name="orders", subscriptions=(replace(_LOCKED, name="journal"),), requires_duplicate_detection=True
        ),
    ),
)


@pytest.mark.slow
def test_the_job_finds_no_missing_message_after_ten_kills(tmp_path: Path) -> None:
    check_spark()
    (tmp_path / "tasks").mkdir()
    (tmp_path / "connections.yaml").write_text(
        "west: {kind: service-bus, setting: WEST}\neast: {kind: service-bus, setting: EAST}\n"
    )
    (tmp_path / "journal.yaml").write_text("blob: {setting: JOURNAL}\n")
    (tmp_path / "tasks" / "all.yaml").write_text(TASKS)
    begun = datetime.now(UTC)
    with RunningBroker([WEST, EAST]) as broker, running_azurite(tmp_path) as storage:
        settings = {
            "BUSWAY_CONFIG": str(tmp_path),
            "WEST": broker.connection_string("west"),
            "EAST": broker.connection_string("east"),
            "JOURNAL": storage,
        }
        with (
            ServiceBusClient.from_connection_string(settings["WEST"]) as west,
            ServiceBusClient.from_connection_string(settings["EAST"]) as east,
        ):
            settlements = broker.faults("west")
            for kill in range(KILLS):
                # Before the host starts, which would settle them while they are sent.
                _send(west, kill)
                settlements.add(replace(REFUSED, at=1 + 100 * kill))
                # A host that is killed during its start does not become ready.
                with HostProcess(str(ROOT), tmp_path, settings) as host:
                    host.wait_for(partial(_is_struck, settlements))
                    host.kill()
                settlements.clear()
            with HostProcess(str(ROOT), tmp_path, settings) as host:
                host.wait_until_ready(60)
                host.wait_for(
                    lambda: not (_has(west, "replication") or _has(west, "journal") or _has(east, "journal")), 240
                )
                assert host.stop(30) == 0
        out = tmp_path / "out"
        url = ContainerClient.from_connection_string(storage, "journal").url
        start = begun.replace(minute=0, second=0, microsecond=0)
        end = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        hours = ["--start", start.strftime("%Y-%m-%dT%H"), "--end", end.strftime("%Y-%m-%dT%H")]
        code = run_job(url, out, [*hours, "--grace-minutes", "0", "--writers-stopped", "--memory", "1g"], storage)
    (summary,) = (json.loads(path.read_text()) for path in out.glob("runs/*/summary.json"))
    assert (code, summary["verdict"]) == (0, "clean"), summary["sentence"]
    (task,) = summary["tasks"]
    assert task["evidence"] == "taps at both sides"
    assert task["verdicts"] == {"delivered": MESSAGES}
    # The kills had an effect: messages of each process were sent again by a later one.
    numbers = _sent(out / "journal")
    assert len(numbers) >= MESSAGES + KILLS
    assert len(set(numbers)) == MESSAGES


def _send(west: ServiceBusClient, kill: int) -> None:
    with west.get_topic_sender("orders") as sender:
        numbers = range(kill * MESSAGES // KILLS, (kill + 1) * MESSAGES // KILLS)
        for at in range(0, len(numbers), 500):
            sender.send_messages(
                [ServiceBusMessage(b"order %d" % n, message_id=f"o-{n}") for n in numbers[at : at + 500]]
            )


def _is_struck(faults: NamespaceFaults) -> bool:
    return any(each["struck"] for each in faults.plain())


def _has(client: ServiceBusClient, subscription: str) -> bool:
    """Return whether a subscription holds any message."""
    with client.get_subscription_receiver("orders", subscription) as receiver:
        return bool(receiver.peek_messages(1, sequence_number=1))


def _sent(journal: Path) -> list[int]:
    """Return the sequence numbers that the task has put on record as sent."""
    files = journal.glob("task=copy/*/*/role=target/*.gz")
    records = [json.loads(line) for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]
    return [record["src_seq"] for record in records if record["outcome"] == "sent"]
