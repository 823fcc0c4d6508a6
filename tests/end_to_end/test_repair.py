"""`busway repair` with the local broker and Microsoft's SDK at both ends, once in a process of its own."""

import asyncio
import json
import resource
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.eventhub import EventData
from azure.eventhub.amqp import AmqpAnnotatedMessage
from azure.servicebus import ServiceBusMessage

from busway_broker.core.namespace import Namespace
from cli.letters.ledger_file import LedgerFile
from cli.repair.manifest import ledger_of, read
from cli.repair.repair import Repair, ledger_in
from cli.repair.search import Report, State
from host.dotnet_message import reencode
from host.dotnet_values import CannotReceive
from shared.tasks.files import load
from tests.end_to_end.repair_site import RepairSite, dead_letter, encoded, row

pytestmark = pytest.mark.long


@pytest.fixture
def site(tmp_path: Path) -> Iterator[RepairSite]:
    with RepairSite(tmp_path) as site:
        yield site


def test_dead_letters_are_sent_once_as_the_task_would_send_them(site: RepairSite) -> None:
    rows = dead_letter(site, 5)
    site.missing(rows[:3])
    shown = site.repair()
    assert (shown.exit_code, shown.stderr) == (0, "Nothing was changed: --yes does it.\n")
    assert shown.stdout.count("in west/orders/$DeadLetterQueue") == 3
    assert site.arrived("orders") == []
    applied = site.start("repair", str(site.manifest), "--yes")
    assert (applied.communicate()[1], applied.returncode) == ("", 0)
    found = site.arrived("orders")
    assert [each.message_id for each in found] == ["o-0", "o-1", "o-2"]
    for each, wanted in zip(found, rows, strict=False):
        properties = {name.decode(): value for name, value in each.application_properties.items()}
        assert properties["repl-sequence"] == str(wanted["src_seq"]).encode()
        assert properties["repl-path"] == b"west"
        assert properties["n"] == 100 + int(each.message_id[2:])
        assert set(properties) == {"n", "repl-sequence", "repl-path", "repl-enqueue-time"}
    assert len(site.there("west/orders/$DeadLetterQueue")) == 5
    # In the next night the same messages are still missing, and one more.
    site.manifest = site.folder / "runs" / "second-night" / "repair.jsonl"
    site.missing(rows[:4])
    again = site.repair("--yes")
    assert again.exit_code == 0
    assert again.stdout.count("done before") == 3 + 1
    assert f"the ledger of sent messages is {site.ledger}" in again.stdout
    assert [each.message_id for each in site.arrived("orders")] == ["o-3"]


def test_a_message_that_one_of_its_targets_lacks_is_sent_there_only(site: RepairSite) -> None:
    has_two_targets(site)
    rows = dead_letter(site, 4)
    for each in rows[:3]:
        each |= {"copies": 1, "expected": 2, "arrived": ["east/orders"]}
    rows[1]["expected"] = 4  # parts, of which nobody knows which one arrived
    rows[2]["arrived"] = ["east/moon"]  # another route at that time
    site.missing(rows)
    applied = site.repair("--yes")
    assert applied.stdout.count("to east/events only") == 1
    assert applied.stdout.count("would arrive twice") == 2
    events, orders = site.arrived("events"), site.arrived("orders")
    assert [event.message_id for event in events] == ["o-0", "o-3"]
    assert [order.message_id for order in orders] == ["o-3"]
    assert set(events[0].application_properties) == {b"n", b"repl-sequence", b"repl-path", b"repl-enqueue-time"}


def has_two_targets(site: RepairSite) -> None:
    tasks = site.folder / "tasks" / "all.yaml"
    both = "[{connection: east, queue: orders}, {connection: east, queue: events}]"
    tasks.write_text(tasks.read_text().replace("{connection: east, queue: orders}", both, 1))


def test_the_ledger_is_next_to_the_runs_or_to_a_copied_manifest(tmp_path: Path) -> None:
    nights = [tmp_path / "out" / "runs" / night / "repair.jsonl" for night in ("a", "b")]
    assert {ledger_of(night) for night in nights} == {tmp_path / "out" / "repaired.jsonl"}
    copied = [tmp_path / "laptop" / f"repair-{night}.jsonl" for night in ("a", "b")]
    assert {ledger_of(night) for night in copied} == {tmp_path / "laptop" / "repaired.jsonl"}


@pytest.mark.parametrize("policy", ["keep", "remaining"])
def test_expired_messages_are_sent_only_if_asked_for_and_live_again(site: RepairSite, policy: str) -> None:
    tasks = site.folder / "tasks" / "all.yaml"
    tasks.write_text(tasks.read_text().replace("---", f"ttl: {policy}\n---", 1))
    life, age = timedelta(minutes=10), timedelta(hours=2)
    rows = dead_letter(site, 2, life=life)
    # It was enqueued two hours ago, by the manifest: its life is over.
    ended = {
        "verdict": "expired-unsent",
        "enqueued_time": rows[1]["enqueued_time"] - round(age.total_seconds()) * 1_000_000,
    }
    site.missing([rows[0], rows[1] | ended])
    first = site.repair("--yes")
    assert (first.exit_code, first.stdout.count("--expired sends it too")) == (0, 1)
    assert [each.message_id for each in site.arrived("orders")] == ["o-0"]
    second = site.repair("--yes", "--expired")
    assert (second.exit_code, second.stderr) == (0, "")
    (found,) = site.arrived("orders")
    assert found.message_id == "o-1"
    assert abs(found.time_to_live - life) < timedelta(minutes=1)


def test_messages_that_only_a_tap_saw_are_distinguished_by_its_numbers(site: RepairSite) -> None:
    rows = dead_letter(site, 3)
    for number, each in enumerate(rows):
        del each["src_seq"], each["enqueued_time"]
        each["places"] = [{"in": "tap", "tap": "watch", "partition": 0, "number": 7 + number}]
    site.missing(rows)
    assert site.repair("--yes").exit_code == 0
    assert [each.message_id for each in site.arrived("orders")] == ["o-0", "o-1", "o-2"]
    assert site.repair("--yes").stdout.count("done before") == 3 + 1


def test_a_missing_target_is_reported_within_seconds_and_leaves_no_doubt(site: RepairSite) -> None:
    (site.folder / "journal.yaml").write_text("event_hub: {connection: hub-west, hub: journal}\n")
    site.missing(dead_letter(site, 4, "gone"))
    messages, _ = read(site.manifest)

    found: list[Report] = []

    ledger = ledger_in(LedgerFile(site.ledger), is_sending=True)
    repair = Repair(load(site.folder), site.settings, [], ledger, found.append)
    asyncio.run(repair.run(messages, is_sending=True, hold=timedelta(seconds=2.5)))
    states = [ledger.state(message.key) for message in messages]
    assert [report.state for report in found] == [State.FAILED] * 4
    assert all("east/gone" in report.text for report in found[:3])
    assert found[3].text == "not tried: the last 3 messages of its task could not be sent"
    # No target accepted any of them: the next repair does not warn that they may arrive twice.
    assert states == ["refused"] * 3 + [None]
    # The repair sent its journal to the hub itself: a command has no output binding.
    assert site.records_in_journal(is_repair=True) == [
        (message.sequence_number, what) for message in messages[:3] for what in ("received", "retry")
    ]


def found_by_tap(site: RepairSite) -> str:
    """Return the text of a dry run for the one missing message, which a tap has seen."""
    (site.folder / "journal.yaml").write_text("event_hub: {connection: hub-west, hub: journal}\n")
    (site.folder / "tasks" / "tap.yaml").write_text(
        "task: watch\n"
        "source: {connection: west, topic: news, subscription: journal, rule: {filter: replication IS NULL}}\n"
        "tap: {of: news, side: source}\n"
    )
    head, *rows = [json.loads(line) for line in site.manifest.read_text().splitlines()]
    seen = [{**each, "places": [{"in": "tap", "tap": "watch", "number": 1}]} for each in rows]
    site.manifest.write_text("".join(json.dumps(each) + "\n" for each in (head, *seen)))
    ((missing,), _) = read(site.manifest)

    found: list[Report] = []

    ledger = ledger_in(LedgerFile(site.ledger), is_sending=False)
    repair = Repair(load(site.folder), site.settings, [], ledger, found.append)
    asyncio.run(repair.run([missing], is_sending=False))
    for path in (site.folder / "journal.yaml", site.folder / "tasks" / "tap.yaml"):
        path.unlink()
    return found[0].text


def test_a_copy_in_another_subscription_gets_what_the_rule_sets(site: RepairSite) -> None:
    site.send("west/news", *(ServiceBusMessage(body, message_id="n-1") for body in (b"news", b"other news")))
    _, other = site.take("west/news/Subscriptions/replication", 2)
    entity = "news/Subscriptions/replication"
    enqueued = round(other.enqueued_time_utc.timestamp() * 1_000_000)
    content = encoded("n-1", b"other news", {})
    site.missing([row("news", entity, other.sequence_number, encoded=content, enqueued_time=enqueued)])
    without = site.repair("--yes")
    assert without.exit_code == 1
    assert "not found in west/news/Subscriptions/replication/$DeadLetterQueue" in without.stdout
    assert found_by_tap(site) == "in west/news/Subscriptions/journal"
    applied = site.repair("--yes", "--copies", "west/news/Subscriptions/journal")
    assert (applied.exit_code, applied.stderr) == (0, "")
    (arrived,) = site.take("east/news/Subscriptions/application", site.active("east/news/Subscriptions/application"))
    assert b"".join(arrived.body) == b"other news"
    assert arrived.application_properties[b"replication"] == 1
    assert arrived.application_properties[b"repl-sequence"] == str(other.sequence_number).encode()


def test_an_event_is_found_among_the_retained_events_of_its_hub(site: RepairSite) -> None:
    for n in range(4):
        event = EventData(b"event %d" % n)
        event.message_id = f"e-{n}"
        site.publish_events("west/telemetry", event, partition_id="1")
    number, enqueued = site.broker.inspect(
        "west",
        lambda west: [
            (event.sequence_number, event.enqueued_time * 1000) for event in west.hub("telemetry").partitions[1].events
        ][2],
    )
    content = encoded("e-2", b"event 2", {})
    site.missing(
        [
            row("telemetry", "telemetry", number, encoded=content, src_part=1, enqueued_time=enqueued),
            row("telemetry", "telemetry", 999, encoded=content, src_part=1, enqueued_time=enqueued),
        ]
    )  # fmt: skip
    applied = site.repair("--yes")
    assert applied.exit_code == 1
    assert applied.stderr == ""
    assert [b"".join(each.body) for each in site.arrived("events")] == [b"event 2"]
    assert "1 no copy" in applied.stdout


def test_an_event_that_the_host_cannot_read_is_sent_with_a_manifest_written_by_hand(site: RepairSite) -> None:
    """docs/hub-sources.md, "Poison for the host"."""
    event: Any = AmqpAnnotatedMessage(value_body=["before", None], properties={"message_id": "poison"})
    site.publish_events("west/telemetry", event, partition_id="0")

    def events(namespace: Namespace) -> list[bytes]:
        return [event.encode() for event in namespace.hub("telemetry").partitions[0].events]

    (poison,) = site.broker.inspect("west", events)
    with pytest.raises(CannotReceive):
        reencode(poison, 0)
    shown = site.run("receive", "hub-west/telemetry", "--position", "--wait", "3")
    place = dict(pair.split("=", 1) for pair in shown.stdout.split("  ", 1)[1].split())
    site.missing(
        [
            {
                "task": "telemetry",
                "src_site": "west",
                "src_entity": "telemetry",
                "src_part": int(place["partition"]),
                "src_seq": int(place["sequence_number"]),
                "enqueued_time": round(datetime.fromisoformat(place["enqueued_time"]).timestamp() * 1000) * 1000,
            }
        ]
    )
    assert site.repair("--yes").exit_code == 0
    (arrived,) = site.arrived("events")
    assert arrived.body == [b"before", None]
    assert arrived.message_id == "poison"


def test_an_incomplete_manifest_is_refused(site: RepairSite) -> None:
    site.missing(dead_letter(site, 2))
    site.manifest.write_text("\n".join(site.manifest.read_text().splitlines()[:2]) + "\n")
    refused = site.repair("--yes")
    assert refused.exit_code == 1
    assert "has 1 of 2 messages (the file is incomplete: copy it again)" in refused.stderr


def test_a_full_disk_ends_the_repair_before_the_next_message(site: RepairSite) -> None:
    rows = dead_letter(site, 3)
    site.missing(rows[:1])
    assert site.repair("--yes").exit_code == 0
    # The limit on the size of files leaves room for the line of the run, and for a part of the next one.
    site.missing(rows)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (site.ledger.stat().st_size + 160, limits[1]))
    try:
        ended = site.repair("--yes")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (ended.exit_code, ended.stdout.count("done before")) == (1, 1 + 1)
    assert f"ended early: {site.ledger}: cannot be written: File too large" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert site.repair("--yes").exit_code == 0
    assert [each.message_id for each in site.arrived("orders")] == ["o-0", "o-1", "o-2"]
