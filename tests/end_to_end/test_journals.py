"""The journal of the function app: tasks and taps with broker, host and Azurite, and a host that is killed."""

import gzip
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.storage.blob import ContainerClient

from busway_broker.faults import Effect, Fault, Operation
from tests.azurite import ACCOUNT, running_azurite
from tests.end_to_end.journal_app import ENTITIES, TASKS, JournalSite, Record
from tests.site import Site


@pytest.fixture(scope="module")
def site(storage: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JournalSite]:
    """One app for all tests: each kills it or uses another task, and continues where the one before has ended."""
    with JournalSite(tmp_path_factory.mktemp("journals"), storage) as site, site.blobs, site.process:
        site.process.wait_until_ready()
        yield site


def test_tasks_and_taps_record_the_same_messages(site: JournalSite) -> None:
    messages = [
        ServiceBusMessage(f"b{n}", message_id=f"m{n}", application_properties={"kind": "internal" if n == 3 else "x"})
        for n in range(5)
    ]
    site.send("west/orders", *messages)
    for key in ("a", "b", "c"):
        site.publish_events("west/readings", *(f"{key}{n}" for n in range(3)), partition_key=key)

    received = site.wait_for("orders", "source", 5, observer="task")
    before = site.wait_for("orders", "source", 5, observer="tap")
    decided = site.wait_for("orders", "target", 5, observer="task")
    after = site.wait_for("orders", "target", 4, observer="tap")
    assert [each["outcome"] for each in sorted(decided, key=lambda each: each["src_seq"])] == [
        *("sent", "sent", "sent", "filtered", "sent"),
    ]
    sent = {each["src_seq"]: each for each in decided if each["outcome"] == "sent"}
    by_number = {each["src_seq"]: each for each in received}
    assert {each["src_seq"] for each in after} == set(sent)
    for each in after:
        original = by_number[each["src_seq"]]
        for field in ("body_digest", "property_digest", "message_id", "enqueued_time", "src_entity", "src_part"):
            assert each[field] == original[field], field
        digests = int(each["body_digest"][:16], 16) ^ int(each["property_digest"], 16)
        assert sent[each["src_seq"]]["check"] == f"{digests:016x}"
        assert each["target"] == sent[each["src_seq"]]["target"] == "east/orders"
        assert each["hops"] == ["west"]
    # The subscription of the tap has sequence numbers of its own, and no property from the task's rule.
    assert all("src_seq" not in each for each in before)
    names = ("message_id", "body_digest", "property_digest")
    assert {tuple(each[name] for name in names) for each in before} == {
        tuple(each[name] for name in names) for each in received
    }

    received = site.wait_for("readings", "source", 9, observer="task")
    before = site.wait_for("readings", "source", 9, observer="tap")
    after = site.wait_for("readings", "target", 9, observer="tap")
    keys = ("src_part", "src_seq", "enqueued_time", "body_digest", "order_key")
    originals = {tuple(each[name] for name in keys) for each in received}
    assert {tuple(each[name] for name in keys) for each in before} == originals
    assert all("src_part" not in each for each in after)
    assert {tuple(each[name] for name in keys[1:]) for each in after} == {original[1:] for original in originals}


def test_the_journal_shows_the_duplicates_of_a_host_killed_before_the_outcome(site: JournalSite) -> None:
    fault = Fault(effect=Effect.LOSE_ACKNOWLEDGEMENT, entity="jobs", operations=frozenset((Operation.SEND,)), times=1)
    site.broker.faults("east").add(fault)
    site.send("west/jobs", *(ServiceBusMessage(f"b{n}", message_id=f"m{n}") for n in range(3)))
    site.process.wait_for(lambda: site.active("east/jobs") == 3)
    site.process.kill()
    first = site.records("jobs", "source")
    assert [(each["src_seq"], each["outcome"]) for each in first] == [(n, "received") for n in (1, 2, 3)]
    assert [record for record in site.records("jobs", "target") if record["observer"] == "task"] == []

    site.broker.faults("west").expire_locks("jobs")
    site.process.__exit__()
    site.process.__enter__()
    site.process.wait_until_ready()
    sent = site.wait_for("jobs", "target", 3, observer="task")
    assert [(each["src_seq"], each["outcome"]) for each in sent] == [(n, "sent") for n in (1, 2, 3)]
    assert {each["instance"] for each in sent}.isdisjoint(each["instance"] for each in first)
    again = [record for record in site.records("jobs", "source") if record["instance"] == sent[0]["instance"]]
    assert [each["attempt"] for each in again] == [2, 2, 2]
    # The task has a record of one copy each; the tap at the target sees two.
    seen = site.wait_for("jobs", "target", 6, observer="tap")
    assert sorted(each["src_seq"] for each in seen) == [1, 1, 2, 2, 3, 3]
    assert len({each["tgt_seq"] for each in seen}) == 6


def test_while_the_journal_is_unavailable_nothing_is_sent_and_no_delivery_is_lost(
    site: JournalSite, tmp_path_factory: pytest.TempPathFactory
) -> None:
    site.process.kill()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with site.host(JOURNAL=f"{ACCOUNT}BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1;") as host:
        host.wait_until_ready()
        site.send("west/jobs", ServiceBusMessage("b", message_id="m"))
        host.wait_for(lambda: "jobs: the batch waits and is retried: journal task=jobs/" in host.log())
        assert site.active("east/jobs") == 6
        with (
            running_azurite(tmp_path_factory.mktemp("azurite"), port) as storage,
            ContainerClient.from_connection_string(storage, site.container) as site.blobs,
        ):
            (sent,) = site.wait_for("jobs", "target", 1, observer="task")
            assert sent["outcome"] == "sent"
            (received,) = site.records("jobs", "source")
            assert "attempt" not in received
            assert site.active("east/jobs") == 7
            assert host.stop() == 0


def test_a_journal_in_an_event_hub_gets_an_event_for_each_batch(tmp_path: Path) -> None:
    tasks = "---".join(document for document in TASKS.split("---") if "peek" not in document)
    with Site(tmp_path, ENTITIES, tasks, journal="event_hub: {connection: hub-east, hub: journal}\n") as site:
        with site.running_host() as host:
            site.send("west/orders", *(ServiceBusMessage("b", application_properties={"kind": "x"}) for _ in range(3)))

            def records() -> list[Record]:
                (events,) = site.events("east/journal")
                return [
                    json.loads(line) for event in events for line in gzip.decompress(event.body or b"").splitlines()
                ]

            host.wait_for(lambda: len(records()) >= 12, every=0.2)
        assert sorted((record["observer"], record["role"], record["outcome"]) for record in records()) == [
            *[("tap", "source", "seen")] * 3,
            *[("tap", "target", "seen")] * 3,
            *[("task", "source", "received")] * 3,
            *[("task", "target", "sent")] * 3,
        ]
