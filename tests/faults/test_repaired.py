"""
Messages are lost, the nightly job finds them, `busway repair` sends them, and the job says that they were repaired.

Host, broker, storage, command and job are those of the product. The test takes minutes, so only `make faults` runs it.
"""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from cli.spark import check_spark
from tests.azurite import running_azurite
from tests.faults.night import reconciled
from tests.faults.test_reconciled import PLACES, TASKS
from tests.site import Site

MESSAGES, LOST = 20, 3
ENTITIES = "{west: {topics: {orders: [replication, journal]}}, east: {topics: {orders: [journal]}}}"
SOURCE = "west/orders/Subscriptions/replication"


@pytest.mark.slow
def test_lost_messages_are_repaired_and_the_next_reconciliation_is_clean(tmp_path: Path) -> None:
    check_spark()
    begun, out = datetime.now(UTC), tmp_path / "out"
    with running_azurite(tmp_path) as storage, Site(tmp_path, ENTITIES, TASKS, storage=storage) as site:
        site.send("west/orders", *(ServiceBusMessage(b"order %d" % n, message_id=f"o-{n}") for n in range(MESSAGES)))
        # Another receiver dead-letters the first of them before the task runs.
        with site.receiver(SOURCE) as receiver:
            for message in receiver.receive_messages(LOST, max_wait_time=10):
                receiver.dead_letter_message(message, reason="Mistaken")
        carry(site)
        code, summary = reconciled(storage, out, begun)
        assert (code, summary["verdict"]) == (1, "findings"), summary["sentence"]
        assert summary["tasks"][0]["verdicts"] == {"delivered": MESSAGES - LOST, "missing": LOST}
        (manifest,) = out.glob("runs/*/repair.jsonl")
        done = site.run("repair", str(manifest), "--yes")
        assert done.exit_code == 0, done.output
        # The tap at the target sees what the repair sent.
        carry(site)
        code, summary = reconciled(storage, out, begun, "--refreeze")
    assert (code, summary["verdict"]) == (0, "clean"), summary["sentence"]
    assert summary["sentence"] == f"{MESSAGES} messages, all accounted for, {LOST} repaired."
    assert summary["tasks"][0]["verdicts"] == {"delivered": MESSAGES - LOST, "repaired": LOST}


def carry(site: Site) -> None:
    """Run the host until no message is left."""
    with site.running_host() as host:
        host.wait_for(lambda: not any(site.there(each) for each in (SOURCE, *PLACES)), 90)
