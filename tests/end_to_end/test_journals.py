"""The journal of the function app: tasks and taps with broker, host and Azurite, and a host that is killed."""

import gzip
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from azure.servicebus import ServiceBusMessage
from azure.storage.blob import ContainerClient

from busway_broker.config import HubConfig
from busway_broker.faults import Effect, Fault, Operation
from busway_broker.thread import RunningBroker
from tests.azurite import ACCOUNT, running_azurite
from tests.end_to_end.journal_app import EAST, TASKS, WEST, App, Record


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_azurite(tmp_path_factory.mktemp("azurite")) as connection_string:
        yield connection_string


@pytest.fixture
def app(storage: str, tmp_path: Path) -> Iterator[App]:
    with RunningBroker([WEST, EAST]) as broker:
        app = App(storage, tmp_path, broker)
        with app.client, app.host:
            app.host.wait_until_ready()
            yield app


def test_tasks_and_taps_record_the_same_messages(app: App) -> None:
    messages = [
        ServiceBusMessage(f"b{n}", message_id=f"m{n}", application_properties={"kind": "internal" if n == 3 else "x"})
        for n in range(5)
    ]
    app.send("orders", *messages)
    with EventHubProducerClient.from_connection_string(app.settings["WEST"], eventhub_name="readings") as producer:
        for key in ("a", "b", "c"):
            producer.send_batch([EventData(f"{key}{n}") for n in range(3)], partition_key=key)

    received = app.wait_for("orders", "source", 5, observer="task")
    before = app.wait_for("orders", "source", 5, observer="tap")
    decided = app.wait_for("orders", "target", 5, observer="task")
    after = app.wait_for("orders", "target", 4, observer="tap")
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

    received = app.wait_for("readings", "source", 9, observer="task")
    before = app.wait_for("readings", "source", 9, observer="tap")
    after = app.wait_for("readings", "target", 9, observer="tap")
    keys = ("src_part", "src_seq", "enqueued_time", "body_digest", "order_key")
    originals = {tuple(each[name] for name in keys) for each in received}
    assert {tuple(each[name] for name in keys) for each in before} == originals
    assert all("src_part" not in each for each in after)
    assert {tuple(each[name] for name in keys[1:]) for each in after} == {each[1:] for each in originals}
    assert app.host.stop() == 0


def test_the_journal_shows_the_duplicates_of_a_host_killed_before_the_outcome(app: App) -> None:
    fault = Fault(effect=Effect.LOSE_ACKNOWLEDGEMENT, entity="jobs", operations=frozenset((Operation.SEND,)), times=1)
    app.broker.faults("east").add(fault)
    app.send("jobs", *(ServiceBusMessage(f"b{n}", message_id=f"m{n}") for n in range(3)))
    app.host.wait_for(lambda: app.broker.counts("east")["jobs"].active == 3)
    app.host.kill()
    first = app.records("jobs", "source")
    assert [(each["src_seq"], each["outcome"]) for each in first] == [(n, "received") for n in (1, 2, 3)]
    assert [each for each in app.records("jobs", "target") if each["observer"] == "task"] == []

    app.broker.faults("west").expire_locks("jobs")
    app.host.__exit__()
    app.host.__enter__()
    app.host.wait_until_ready()
    sent = app.wait_for("jobs", "target", 3, observer="task")
    assert [(each["src_seq"], each["outcome"]) for each in sent] == [(n, "sent") for n in (1, 2, 3)]
    assert {each["instance"] for each in sent}.isdisjoint(each["instance"] for each in first)
    again = [each for each in app.records("jobs", "source") if each["instance"] == sent[0]["instance"]]
    assert [each["attempt"] for each in again] == [2, 2, 2]
    # The task has a record of one copy each; the tap at the target sees two.
    seen = app.wait_for("jobs", "target", 6, observer="tap")
    assert sorted(each["src_seq"] for each in seen) == [1, 1, 2, 2, 3, 3]
    assert len({each["tgt_seq"] for each in seen}) == 6


def test_while_the_journal_is_unavailable_nothing_is_sent_and_no_delivery_is_lost(
    app: App, tmp_path_factory: pytest.TempPathFactory
) -> None:
    app.host.kill()
    app.host.__exit__()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    app.settings["JOURNAL"] = f"{ACCOUNT}BlobEndpoint=http://127.0.0.1:{port}/devstoreaccount1;"
    app.host.__enter__()
    app.host.wait_until_ready()
    app.send("jobs", ServiceBusMessage("b", message_id="m"))
    app.host.wait_for(lambda: "jobs: the batch waits and is retried: journal task=jobs/" in app.host.log())
    assert app.broker.counts("east")["jobs"].active == 0
    with (
        running_azurite(tmp_path_factory.mktemp("azurite"), port) as storage,
        ContainerClient.from_connection_string(storage, app.container) as app.client,
    ):
        (sent,) = app.wait_for("jobs", "target", 1, observer="task")
        assert sent["outcome"] == "sent"
        (received,) = app.records("jobs", "source")
        assert "attempt" not in received
        assert app.broker.counts("east")["jobs"].active == 1
        assert app.host.stop() == 0


def test_a_journal_in_an_event_hub_gets_an_event_for_each_batch(storage: str, tmp_path: Path) -> None:
    journal = replace(EAST, hubs=(*EAST.hubs, HubConfig(name="journal", partition_count=1)))
    with RunningBroker([WEST, journal]) as broker:
        app = App(storage, tmp_path, broker)
        tasks = [document for document in TASKS.split("---") if "peek" not in document]
        (tmp_path / "tasks" / "all.yaml").write_text("---".join(tasks))
        (tmp_path / "journal.yaml").write_text("event_hub: {connection: hub-east, hub: journal}\n")
        with app.client, app.host:
            app.host.wait_until_ready()
            plain: dict[str | bytes, Any] = {"kind": "x"}
            app.send("orders", *(ServiceBusMessage(f"b{n}", application_properties=plain) for n in range(3)))
            records: list[Record] = []

            def on_event(_: object, event: Any) -> None:
                records.extend(json.loads(line) for line in gzip.decompress(b"".join(event.body)).splitlines())

            consumer = EventHubConsumerClient.from_connection_string(
                app.settings["EAST"], consumer_group="$Default", eventhub_name="journal"
            )
            reading = threading.Thread(target=consumer.receive, args=(on_event,), kwargs={"starting_position": "-1"})
            reading.start()
            try:
                app.host.wait_for(lambda: len(records) >= 12)
            finally:
                consumer.close()
                reading.join()
            found = sorted((each["observer"], each["role"], each["outcome"]) for each in records)
            assert found == [
                *[("tap", "source", "seen")] * 3,
                *[("tap", "target", "seen")] * 3,
                *[("task", "source", "received")] * 3,
                *[("task", "target", "sent")] * 3,
            ]
            assert app.host.stop() == 0
