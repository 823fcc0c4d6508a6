"""
The host is killed ten times while it copies 20,000 messages, and the nightly job reconciles them.

The test does not count messages at the target, because the job does. It takes minutes, so only `make faults` runs it.
"""

import gzip
import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.storage.blob import ContainerClient

from cli.reconcile import check_spark, run_job
from local.broker.config import NamespaceConfig, SubscriptionConfig, TopicConfig
from local.broker.thread import RunningBroker
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
# Messages that were sent but not settled are sent again after a kill: the target must detect them.
EAST = NamespaceConfig(
    name="east",
    topics=(
        TopicConfig(
            name="orders", subscriptions=(replace(_LOCKED, name="journal"),), requires_duplicate_detection=True
        ),
    ),
)


@pytest.mark.skipif("BUSWAY_SLOW" not in os.environ, reason="takes minutes; make faults runs it")
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
            for kill in range(KILLS):
                with HostProcess(str(ROOT), tmp_path, settings) as host:
                    host.wait_until_ready(60)
                    _send(west, kill)
                    # Kill the host as soon as it has started with these messages.
                    host.wait_for(partial(_has_begun, west, kill), 60)
                    host.kill()
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
    # The kills had an effect: messages were redelivered.
    assert _received(out / "journal") > MESSAGES


def _first(kill: int) -> int:
    """Return the sequence number of the first message sent before a kill; the topic counts from 1."""
    return kill * (MESSAGES // KILLS) + 1


def _send(west: ServiceBusClient, kill: int) -> None:
    with west.get_topic_sender("orders") as sender:
        numbers = range(_first(kill), _first(kill + 1))
        for at in range(0, len(numbers), 500):
            sender.send_messages(
                [ServiceBusMessage(b"order %d" % n, message_id=f"o-{n}") for n in numbers[at : at + 500]]
            )


def _has(client: ServiceBusClient, subscription: str, first: int | None = None) -> bool:
    """Return whether a subscription holds any message, or the message *first* if it is given."""
    with client.get_subscription_receiver("orders", subscription) as receiver:
        found = receiver.peek_messages(1, sequence_number=first or 1)
    return bool(found) and (first is None or found[0].sequence_number == first)


def _has_begun(west: ServiceBusClient, kill: int) -> bool:
    return not _has(west, "replication", first=_first(kill))


def _received(journal: Path) -> int:
    return sum(
        gzip.decompress(path.read_bytes()).count(b'"outcome":"received"')
        for path in journal.glob("task=copy/*/*/role=source/*.gz")
    )
