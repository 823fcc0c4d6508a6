"""
Messages are lost, the nightly job finds them, `busway repair` sends them, and the job says that they were repaired.

Host, broker, storage, command and job are those of the product. The test takes minutes, so only `make faults` runs it.
"""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.storage.blob import ContainerClient

from busway_broker.config import NamespaceConfig, SubscriptionConfig, TopicConfig
from busway_broker.thread import RunningBroker
from cli.spark import check_spark, run_job
from tests.azurite import running_azurite
from tests.end_to_end.host_process import ROOT, HostProcess
from tests.faults.test_reconciled import TASKS

MESSAGES, LOST = 20, 3

WEST = NamespaceConfig(
    name="west",
    topics=(
        TopicConfig(
            name="orders", subscriptions=tuple(SubscriptionConfig(name=each) for each in ("replication", "journal"))
        ),
    ),
)
EAST = NamespaceConfig(
    name="east", topics=(TopicConfig(name="orders", subscriptions=(SubscriptionConfig(name="journal"),)),)
)


@pytest.mark.slow
def test_lost_messages_are_repaired_and_the_next_reconciliation_is_clean(tmp_path: Path) -> None:
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
            lose_messages(west)
            carry(tmp_path, settings, west, east)
            url = ContainerClient.from_connection_string(storage, "journal").url
            code, summary = reconciled(url, storage, tmp_path / "out", begun)
            assert (code, summary["verdict"]) == (1, "findings"), summary["sentence"]
            assert summary["tasks"][0]["verdicts"] == {"delivered": MESSAGES - LOST, "missing": LOST}
            (manifest,) = (tmp_path / "out").glob("runs/*/repair.jsonl")
            repair = [sys.executable, "-m", "cli", "repair", str(manifest), "--yes", "--config", str(tmp_path)]
            done = subprocess.run(  # noqa: S603 - the command of this repository
                repair, cwd=ROOT, env={**os.environ, **settings}, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stdout + done.stderr
            # The tap at the target sees what the repair sent.
            carry(tmp_path, settings, west, east)
            code, summary = reconciled(url, storage, tmp_path / "out", begun, "--refreeze")
    assert (code, summary["verdict"]) == (0, "clean"), summary["sentence"]
    assert summary["sentence"] == f"{MESSAGES} messages, all accounted for, {LOST} repaired."
    assert summary["tasks"][0]["verdicts"] == {"delivered": MESSAGES - LOST, "repaired": LOST}


def lose_messages(west: ServiceBusClient) -> None:
    """Send messages, and let another receiver dead-letter the first of them before the task runs."""
    with west.get_topic_sender("orders") as sender:
        sender.send_messages([ServiceBusMessage(b"order %d" % n, message_id=f"o-{n}") for n in range(MESSAGES)])
    with west.get_subscription_receiver("orders", "replication") as receiver:
        for each in receiver.receive_messages(LOST, max_wait_time=10):
            receiver.dead_letter_message(each, reason="Mistaken")


def carry(folder: Path, settings: dict[str, str], west: ServiceBusClient, east: ServiceBusClient) -> None:
    """Run the host until no message is left."""
    with HostProcess(str(ROOT), folder, settings) as host:
        host.wait_until_ready(90)
        host.wait_for(lambda: not (has(west, "replication") or has(west, "journal") or has(east, "journal")), 90)
        assert host.stop(30) == 0


def has(client: ServiceBusClient, subscription: str) -> bool:
    with client.get_subscription_receiver("orders", subscription) as receiver:
        return bool(receiver.peek_messages(1))


def reconciled(url: str, storage: str, out: Path, begun: datetime, *options: str) -> tuple[int, dict[str, Any]]:
    """Reconcile the hours since *begun*; return the exit code and the summary."""
    hour = timedelta(hours=1)
    start = begun.replace(minute=0, second=0, microsecond=0)
    end = start + 2 * hour
    hours = ["--start", start.strftime("%Y-%m-%dT%H"), "--end", end.strftime("%Y-%m-%dT%H")]
    code = run_job(url, out, [*hours, "--grace-minutes", "0", "--writers-stopped", "--memory", "1g", *options], storage)
    (path,) = out.glob("runs/*/summary.json")
    return code, json.loads(path.read_text())
