"""
The host is killed ten times while it copies 20,000 messages, and the nightly job reconciles them.

Each kill comes after messages are sent and on record, and before they are settled: those are sent again.

The test does not count messages at the target, because the job does. It takes minutes, so only `make faults` runs it.
"""

import gzip
import itertools
import json
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from busway_broker.faults import Effect, Fault, Operation
from busway_broker.thread import NamespaceFaults
from cli.spark import check_spark
from tests.azurite import running_azurite
from tests.faults.night import reconciled
from tests.site import Site

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
# Locks end soon after a kill, there are more deliveries than kills, and numbers name a partition and do not rise.
# Messages that were sent but not settled are sent again after a kill: the target must detect them.
ENTITIES = """
west:
  topics:
    orders:
      enable_partitioning: true
      subscriptions:
        replication: {lock_duration: 5, max_delivery_count: 100}
        journal: {lock_duration: 5, max_delivery_count: 100}
east:
  topics:
    orders:
      requires_duplicate_detection: true
      subscriptions: {journal: {lock_duration: 5, max_delivery_count: 100}}
"""
# What the host has sent and put on record is not settled.
REFUSED = Fault(effect=Effect.THROTTLE, operations=frozenset({Operation.SETTLE}), entity="orders/*/replication")
PLACES = tuple(f"{each}/Subscriptions/journal" for each in ("west/orders", "east/orders"))


@pytest.mark.slow
def test_the_job_finds_no_missing_message_after_ten_kills(tmp_path: Path) -> None:
    check_spark()
    begun = datetime.now(UTC)
    with running_azurite(tmp_path) as storage, Site(tmp_path, ENTITIES, TASKS, storage=storage) as site:
        settlements = site.broker.faults("west")
        for kill in range(KILLS):
            # Before the host starts, which would settle them while they are sent.
            _send(site, kill)
            settlements.add(replace(REFUSED, at=1 + 100 * kill))
            # A host that is killed during its start does not become ready.
            with site.host() as host:
                host.wait_for(partial(_is_struck, settlements))
                host.kill()
            settlements.clear()
        with site.running_host() as host:
            places = ("west/orders/Subscriptions/replication", *PLACES)
            host.wait_for(lambda: not any(site.there(place) for place in places), 240)
        out = tmp_path / "out"
        code, summary = reconciled(storage, out, begun)
    assert (code, summary["verdict"]) == (0, "clean"), summary["sentence"]
    (task,) = summary["tasks"]
    assert task["evidence"] == "taps at both sides"
    assert task["verdicts"] == {"delivered": MESSAGES}
    # The kills had an effect: messages of each process were sent again by a later one.
    numbers = _sent(out / "journal")
    assert len(numbers) >= MESSAGES + KILLS
    assert len(set(numbers)) == MESSAGES


def _send(site: Site, kill: int) -> None:
    numbers = range(kill * MESSAGES // KILLS, (kill + 1) * MESSAGES // KILLS)
    for some in itertools.batched(numbers, 500, strict=False):
        site.send("west/orders", *(ServiceBusMessage(b"order %d" % n, message_id=f"o-{n}") for n in some))


def _is_struck(faults: NamespaceFaults) -> bool:
    return any(each["struck"] for each in faults.plain())


def _sent(journal: Path) -> list[int]:
    """Return the sequence numbers that the task has put on record as sent."""
    files = journal.glob("task=copy/*/*/role=target/*.gz")
    records = [json.loads(line) for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]
    return [record["src_seq"] for record in records if record["outcome"] == "sent"]
