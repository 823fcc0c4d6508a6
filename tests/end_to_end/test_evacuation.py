"""`busway evacuate` with the local broker and Microsoft's SDK."""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from busway_broker.config import NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig
from busway_broker.core.content import read_content
from busway_broker.core.message import State
from busway_broker.core.namespace import Namespace
from cli.evacuation import receivers, report
from cli.evacuation.gate import Gate
from cli.evacuation.pairs import pairs_of
from cli.evacuation.pauses import Pause
from cli.evacuation.schedule import ScheduledSource
from cli.evacuation.survey import Estimate, Share, Survey
from cli.pause.entity import Entity
from shared.amqp.values import string, timestamp
from shared.ends.service_bus.output import ServiceBusOutput
from shared.errors import TargetUnavailable
from shared.resend import evidence
from shared.resend.options import Options
from shared.resend.places import Place
from shared.resend.receiver import Receiver
from shared.resend.source import LockedMessage
from shared.rules import Rule
from shared.rules.rule import parse_filter
from shared.tasks.files import load
from shared.tasks.models import TaskFile
from tests.end_to_end.dead_letter_site import property_of
from tests.end_to_end.evacuation_site import DUE, ENTITIES, EvacuationSite
from tests.messages import delivered
from tests.site import namespaces, until

EVERYTHING = ["active-0", "active-1", "deferred-0", "deferred-1", "scheduled-0", "scheduled-1"]

# The SDK asks an element for its truth value.
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:Testing an element:DeprecationWarning")]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EvacuationSite]:
    monkeypatch.setattr(evidence, "SETTLE_SECONDS", 0.0)  # no process is killed here
    with EvacuationSite(tmp_path) as site:
        yield site


def test_a_queue_moves_with_messages_in_every_state(site: EvacuationSite) -> None:
    site.fill("orders", 2)
    before = site.names("orders", "west")
    dry = site.evacuate("west/Orders", "east/orders", yes=False)
    assert dry.exit_code == 0, dry.stdout + dry.stderr
    assert [" ".join(line.split()) for line in dry.stdout.splitlines()[:5]] == [
        "west/Orders → east/orders",
        "2 dead letter",
        "2 deferred",
        "2 scheduled",
        "2 active",
    ]
    assert "the task orders-west-to-east receives from west/Orders too" in dry.stdout
    assert (site.names("orders", "west"), site.names("orders", "east")) == (before, [])
    done = site.evacuate("west/orders")
    assert done.exit_code == 0, done.stdout + done.stderr
    assert (site.names("orders", "west"), site.dead()) == ([], [])
    assert sorted(site.names("orders", "east")) == [f"{each} {each.partition('-')[0]}" for each in EVERYTHING]
    dead = site.there("east/orders/$DeadLetterQueue")
    assert [property_of(message, "DeadLetterReason") for message in dead] == [None, "Reason dead-1"]
    assert [property_of(message, "DeadLetterErrorDescription") for message in dead] == [None, "because"]
    file = site.folder / "build/evacuation/west/orders.verdicts.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["verdict"], line["is_there"]) for line in lines] == [("moved", True)] * 8
    numbers = [line["new_number"] for line in lines if line["was"] == "deferred"]
    with site.receiver("east/orders") as receiver:
        found = receiver.receive_deferred_messages(numbers)
        assert [str(message) for message in found] == ["deferred 0", "deferred 1"]
        scheduled = [message for message in receiver.peek_messages(100) if str(message).startswith("scheduled")]
        assert {message.scheduled_enqueue_time_utc for message in scheduled} == {DUE}


def test_sessions_move_in_order_with_their_state(site: EvacuationSite) -> None:
    site.fill("sessions", 4, sessions=True)
    done = site.evacuate("west/sessions")
    assert done.exit_code == 0, done.stdout + done.stderr
    assert (site.names("sessions", "west"), site.states("sessions", "west")) == ([], {})
    assert site.states("sessions", "east") == {each: f"state of {each}".encode() for each in ("s-0", "s-1", "empty")}
    assert len(site.there("east/sessions/$DeadLetterQueue")) == 4
    with site.receiver("east/sessions", session_id="s-1") as receiver:
        assert [str(message) for message in receiver.receive_messages(10, max_wait_time=1)] == ["active 1", "active 3"]


@pytest.mark.parametrize("queue", ["parts", "parts-once", "parts-sessions"])
def test_a_partitioned_queue_moves_with_messages_in_every_state(site: EvacuationSite, queue: str) -> None:
    # SR30, SR54: one message in an answer, and deferred ones of one partition in a request.
    count = 10
    site.fill(queue, count, sessions=queue == "parts-sessions")
    before = site.names(queue, "west")
    assert len({number >> 48 for number in site.numbers(queue, "west")}) > 1
    done = site.evacuate(f"west/{queue}")
    assert done.exit_code == 0, done.stdout + done.stderr
    assert (site.names(queue, "west"), site.there(f"west/{queue}/$DeadLetterQueue")) == ([], [])
    assert sorted(site.names(queue, "east")) == sorted(before)
    assert len(site.there(f"east/{queue}/$DeadLetterQueue")) == count
    verdicts = site.folder / f"build/evacuation/west/{queue}.verdicts.jsonl"
    lines = [json.loads(line) for line in verdicts.read_text().splitlines()]
    assert [(line["verdict"], line["is_there"]) for line in lines] == [("moved", True)] * 4 * count
    assert site.probes(queue) == 0


@pytest.mark.parametrize("queue", ["orders", "sessions"])
def test_what_has_expired_moves_as_a_dead_letter_although_the_source_still_shows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, queue: str
) -> None:
    """SR51: expired messages stay until somebody receives; SS24: deferred ones too. A session gives none of them."""
    monkeypatch.setattr(evidence, "SETTLE_SECONDS", 0.0)
    own = QueueConfig(
        name=queue,
        requires_session=queue == "sessions",
        dead_lettering_on_message_expiration=True,
        lock_duration=timedelta(seconds=5),
    )
    sites = [
        NamespaceConfig(name=name, queues=(own,), expires_lazily=True, deferred_expire=True)
        for name in ("west", "east")
    ]
    with EvacuationSite(tmp_path, sites) as site:
        session: dict[str, Any] = {"session_id": "s"} if queue == "sessions" else {}
        with site.client("west").get_queue_sender(queue) as sender:
            for name in ("deferred", "short"):
                message = ServiceBusMessage(name, message_id=name, time_to_live=timedelta(seconds=2), **session)
                sender.send_messages(message)
                if name == "deferred":
                    with site.receiver(f"west/{queue}", **session) as receiver:
                        receiver.defer_message(receiver.receive_messages(1, max_wait_time=5)[0])
            sender.send_messages(ServiceBusMessage("long", message_id="long", **session))
        time.sleep(2.5)
        assert site.names(queue, "west") == ["deferred deferred", "short active", "long active"]
        done = site.evacuate(f"west/{queue}")
        assert done.exit_code == 0, done.stdout + done.stderr
        assert "2 gone: they have expired" in done.stdout
        assert (site.names(queue, "west"), site.names(queue, "east")) == ([], ["long active"])
        assert len(site.there(f"east/{queue}/$DeadLetterQueue")) == 2


def test_a_session_of_the_target_that_was_lost_is_locked_again(
    site: EvacuationSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receivers, "_RENEWAL_SECONDS", 0.0)

    async def hold() -> bytes | None:
        targets = receivers.TargetReceivers(Place("east", "east", "EAST", "sessions"), site.settings)
        await targets.of("s")
        site.broker.faults("east").expire_locks("sessions")
        with pytest.raises(TargetUnavailable, match="SessionLockLostError"):
            await targets.keep()
        receiver = await targets.of("s")
        await targets.keep()
        try:
            return await receiver.management.session_state("s", 5.0)
        finally:
            await targets.close()

    assert asyncio.run(hold()) is None


def test_a_partition_key_moves_with_its_messages_in_order(site: EvacuationSite) -> None:
    for number in range(30):
        annotated = {"x-opt-partition-key": string(f"key-{number % 5}")}
        site.publish("west/parts", [delivered(None, message_id=f"m-{number}", annotated=annotated)])
    done = site.evacuate("west/parts")
    assert done.exit_code == 0, done.stdout + done.stderr
    found = site.broker.inspect("east", lambda east: [message.content for message in east.store("parts").peek(0)])
    for key in range(5):
        names = [content.message_id[2:].decode() for content in found if content.partition_key == f"key-{key}"]
        assert names == [f"m-{number}" for number in range(key, 30, 5)]


def test_what_a_killed_run_leaves_in_partitions_is_moved_by_the_next(
    site: EvacuationSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The simulation has what is dead-lettered, and no deferred messages.
    site.fill("parts", 8)
    with monkeypatch.context() as patch:
        patch.setattr(Receiver, "defer", killed)
        with pytest.raises(Killed):
            site.evacuate("west/parts")
    again = site.evacuate("west/parts")
    assert again.exit_code == 0, again.stdout + again.stderr
    arrived = site.names("parts", "east")
    assert len(arrived) == len(set(arrived)) == 24
    assert len(site.there("east/parts/$DeadLetterQueue")) == 8


def test_what_keeps_a_message_or_an_entity_is_reported_and_the_rest_moves(site: EvacuationSite) -> None:
    for size in (1, 400_000, 1):
        site.send("west/large", ServiceBusMessage(b"x" * size))
    site.send("west/once", *(ServiceBusMessage("a", message_id=each) for each in ("same", "same", "other")))
    site.send("west/sessions", *(ServiceBusMessage("a", session_id=each) for each in ("s-0", "s-1")))
    large = site.evacuate("west/large")
    assert (large.exit_code, "1 left: the target refuses it: east/large" in large.stdout) == (1, True)
    assert "(sequence number 2)" in large.stdout
    assert len(site.there("east/large")) == 2
    once = site.evacuate("west/once")
    assert (once.exit_code, "east/once would drop it as a duplicate" in once.stdout) == (1, True)
    assert len(site.there("east/once")) == 2
    with site.receiver("west/sessions", session_id="s-0"):
        locked = site.evacuate("west/sessions")
    assert (locked.exit_code, "its session is locked by another receiver" in locked.stdout) == (1, True)
    assert len(site.there("east/sessions")) == 1
    for source, to, text in (
        ("west/alone", "east", "east/alone does not exist"),
        ("west/orders", "east/sessions", "east/sessions requires sessions, west/orders does not"),
        ("west/orders", "west/orders", "is the same entity"),
    ):
        failed = site.evacuate(source, to, yes=False)
        assert (failed.exit_code, f"stays: {text}" in failed.stdout) == (1, True), failed.stdout
    for source, to, text in (
        ("north", "east", "expected west or west/ENTITY, east or east/ENTITY"),
        ("west/nothing", "east", "is not an entity of this namespace"),
        ("west", "east/orders", "names one entity for several"),
    ):
        wrong = site.evacuate(source, to)
        assert (wrong.exit_code, text in wrong.stderr) == (1, True), wrong.stderr


def test_a_deferred_message_stays_if_the_target_could_dead_letter_it(site: EvacuationSite) -> None:
    # SR13
    site.fill("impatient", 1)
    done = site.evacuate("west/impatient")
    assert (done.exit_code, "expected a MaxDeliveryCount of at least 3, got 2" in done.stdout) == (1, True)
    assert site.names("impatient", "west") == ["deferred-0 deferred"]
    assert sorted(site.names("impatient", "east")) == ["active-0 active", "scheduled-0 scheduled"]


def test_a_namespace_moves_and_each_subscription_gets_only_its_own(site: EvacuationSite) -> None:
    with site.client("west").get_topic_sender("news") as sender:
        sender.send_messages([ServiceBusMessage(f"{n}", message_id=f"n-{n}") for n in range(3)])
        sender.schedule_messages(ServiceBusMessage("later", message_id="later"), DUE)
    site.take("west/news/Subscriptions/b", 1)
    site.send("west/orders", ServiceBusMessage("o", message_id="o-1"))
    rules = site.run("export", "east").stdout
    shown = site.evacuate("west", yes=False)
    assert (shown.exit_code, shown.stdout.count("stays: east/closed has the status Disabled")) == (1, 1), shown.stdout
    assert "  stays: west/closed/$DeadLetterQueue: it cannot be peeked" in shown.stdout
    assert "       3 active" in shown.stdout.partition("west/news/Subscriptions/app → ")[2]
    done = site.evacuate("west")
    assert (done.exit_code, "stays: east/alone does not exist" in done.stdout) == (1, True), done.stdout + done.stderr
    assert site.names("orders", "east") == ["o-1 active"]
    assert site.names("news", "east") == ["later scheduled"]
    assert site.names("news/Subscriptions/app", "east") == [f"n-{n} active" for n in range(3)]
    assert site.names("news/Subscriptions/b", "east") == [f"n-{n} active" for n in (1, 2)]
    assert [property_of(message, "replication") for message in site.there("east/news/Subscriptions/app")] == [1] * 3
    assert site.run("export", "east").stdout == rules
    assert not [*(site.folder / "build/evacuation").rglob("*.rules.json")]


@pytest.mark.parametrize("delay", [0.0, 2.0])
def test_rules_are_restored_only_when_the_topic_has_distributed_the_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delay: float
) -> None:
    """SR58: copies appear seconds after the topic has accepted a message, by the rules of that time."""
    monkeypatch.setattr(report, "DISTRIBUTION_SECONDS", 3.0)
    sites = [replace(site, copy_delay=timedelta(seconds=delay)) for site in namespaces(ENTITIES)]
    with EvacuationSite(tmp_path, sites) as site:
        with site.client("west").get_topic_sender("news") as sender:
            sender.send_messages([ServiceBusMessage(f"{n}", message_id=f"n-{n}") for n in range(3)])
        until(lambda: len(site.names("news/Subscriptions/b", "west")) == 3)
        site.take("west/news/Subscriptions/b", 1)
        done = site.evacuate("west/news")
        assert (done.exit_code, "waits 3 s for its subscriptions" in done.stdout) == (0, delay > 0), done.stdout
        assert site.names("news/Subscriptions/app", "east") == ["n-0 active", "n-1 active", "n-2 active"]
        assert site.names("news/Subscriptions/b", "east") == ["n-1 active", "n-2 active"]


def test_rules_of_a_killed_run_are_restored_only_when_the_topic_has_distributed_its_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run has nothing to move. By the original rules, the copy would reach no subscription."""
    sites = [replace(site, copy_delay=timedelta(seconds=5)) for site in namespaces(ENTITIES)]
    with EvacuationSite(tmp_path, sites) as site:
        with site.client("west").get_topic_sender("news") as sender:
            sender.send_messages(ServiceBusMessage("a", message_id="a"))
        until(lambda: len(site.names("news/Subscriptions/app", "west")) == 1)
        site.take("west/news/Subscriptions/b", 1)
        with monkeypatch.context() as patch:
            patch.setattr(report, "DISTRIBUTION_SECONDS", 0.0)
            patch.setattr(Gate, "open", killed)
            with pytest.raises(Killed):
                site.evacuate("west/news")
        assert site.names("news/Subscriptions/app", "west") == site.names("news/Subscriptions/app", "east") == []
        monkeypatch.setattr(report, "DISTRIBUTION_SECONDS", 7.0)
        done = site.evacuate("west/news")
        assert (done.exit_code, "waits 7 s for its subscriptions" in done.stdout) == (0, True), done.stdout
        assert site.names("news/Subscriptions/app", "east") == ["a active"]
        assert site.names("news/Subscriptions/b", "east") == []
        assert not [*(site.folder / "build/evacuation").rglob("*.rules.json")]


def test_an_application_that_receives_at_the_target_is_noticed_with_the_first_message(
    site: EvacuationSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cli.evacuation.move._PATIENCE_SECONDS", 1.5)
    site.fill("orders", 3)
    with site.receiver("east/orders", prefetch_count=10) as receiver:
        receiver.receive_messages(1, max_wait_time=0.2)
        done = site.evacuate("west/orders")
        taken = receiver.receive_messages(10, max_wait_time=1)
    assert done.exit_code == 1
    assert "another receiver took it" in done.stderr
    assert "1 left: east/orders accepted a message, and it was not there to be set aside" in done.stdout
    assert "9 left: not reached: the run ended before it (sequence number 1" in done.stdout
    assert "2 left: not reached: the run ended before it (sequence number 2, 3 of the dead-letter queue)" in done.stdout
    assert len(taken) <= 1
    assert len(site.dead()) == 3


class Killed(BaseException):
    """Ends a run as SIGKILL would."""


def killed(*_: Any, **__: Any) -> Any:
    raise Killed


@pytest.mark.parametrize("queue", ["orders", "sessions"])
def test_what_a_killed_run_has_locked_at_the_target_is_waited_for(
    site: EvacuationSite, monkeypatch: pytest.MonkeyPatch, queue: str
) -> None:
    site.fill(queue, 3, sessions=queue == "sessions")
    with monkeypatch.context() as patch:
        patch.setattr(Receiver, "defer", killed)
        with pytest.raises(Killed):
            site.evacuate(f"west/{queue}")
    if queue == "orders":
        early = site.evacuate(f"west/{queue}", "east", "--wait", "0.1")
        assert early.exit_code == 1
        assert f"it is at east/{queue}, and locked there" in early.stdout
        assert "not found" not in early.stdout
    again = site.evacuate(f"west/{queue}")
    assert again.exit_code == 0, again.stdout + again.stderr
    assert site.names(queue, "west") == []
    arrived = site.names(queue, "east")
    assert len(arrived) == len(set(arrived)) == 9
    assert len(site.there(f"east/{queue}/$DeadLetterQueue")) == 3


def test_the_verdicts_are_those_of_one_round(site: EvacuationSite) -> None:
    verdicts = site.folder / "build/evacuation/west/orders.verdicts.jsonl"

    def moved(*ids: str) -> list[str]:
        site.publish("west/orders", [delivered(None, message_id=each) for each in ids])
        done = site.evacuate("west/orders")
        assert done.exit_code == 0, done.stdout
        return [json.loads(line)["sequence_number"] for line in verdicts.read_text().splitlines()]

    assert moved("a", "b") == ["1", "2"]
    site.empty("east/orders")
    assert moved("c") == ["3"]
    assert moved() == ["3"]


@pytest.fixture
def nservicebus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EvacuationSite]:
    """Give two namespaces as NServiceBus makes them: queues, each with a subscription that forwards to it."""
    endpoints = [f"endpoint-{number}" for number in range(8)]
    queues = [QueueConfig(name=name, max_delivery_count=2**31 - 1) for name in [*endpoints, "error", "audit"]]
    long = parse_filter("[NServiceBus.EnclosedMessageTypes] LIKE '%" + "x" * 970 + "%'")
    subscriptions = [
        SubscriptionConfig(name=name, forward_to=name, max_delivery_count=2**31 - 1, rules=(Rule("events", long),))
        for name in endpoints
    ]
    topics = (TopicConfig(name="bundle-1", subscriptions=tuple(subscriptions)), TopicConfig(name="events"))
    namespaces = [NamespaceConfig(name=name, queues=tuple(queues), topics=topics) for name in ("west", "east")]
    monkeypatch.setattr(evidence, "SETTLE_SECONDS", 0.0)
    with EvacuationSite(tmp_path, namespaces) as site:
        yield site


def test_a_namespace_whose_subscriptions_forward_is_evacuated(nservicebus: EvacuationSite) -> None:
    nservicebus.publish("west/endpoint-7", [delivered(None, message_id="a")])
    nservicebus.publish("west/error", [delivered(None, message_id="b")])
    done = nservicebus.evacuate("west")
    assert done.exit_code == 0, done.stdout + done.stderr
    assert "stays" not in done.stdout
    assert (nservicebus.names("endpoint-7", "east"), nservicebus.names("error", "east")) == (["a active"], ["b active"])


def test_what_an_entity_that_forwards_still_has_is_named(nservicebus: EvacuationSite) -> None:
    subscription = "bundle-1/Subscriptions/endpoint-1"

    def leave(namespace: Namespace) -> None:
        backlog = namespace.subscription("bundle-1", "endpoint-1").backlog
        backlog.dead_letters.add(read_content(delivered(None, message_id="dead")))
        backlog.store.add(read_content(delivered(None, message_id="waits")))

    nservicebus.broker.inspect("west", leave)
    done = nservicebus.evacuate(f"west/{subscription}")
    assert done.exit_code == 1
    assert f"1 left: east/{subscription} forwards its messages: nothing can be looked for" in done.stdout
    assert "stays: 1 messages wait until what it forwards to has room" in done.stdout


def test_a_scheduled_message_that_is_too_large_for_the_target_is_named_at_once(site: EvacuationSite) -> None:
    due = {"x-opt-scheduled-enqueue-time": timestamp(round(DUE.timestamp() * 1000))}
    site.publish("west/large", [delivered(None, message_id="big", body=bytes(300_000), annotated=due)])
    done = site.evacuate("west/large")
    assert done.exit_code == 1
    assert "1 left: the target takes no message of 300," in done.stdout
    assert "unclear" not in done.stdout


def test_a_dead_letter_that_was_deferred_is_named(site: EvacuationSite) -> None:
    site.bury("sessions", [delivered(None, message_id="a", session_id="s")])

    def defer(namespace: Namespace) -> None:
        for message in namespace.queue("sessions").backlog.dead_letters.messages.values():
            message.state = State.DEFERRED

    site.broker.inspect("west", defer)
    done = site.evacuate("west/sessions")
    assert done.exit_code == 1
    assert "1 left: is a dead letter that was deferred" in done.stdout


def test_a_source_that_a_pause_has_closed_is_opened_meanwhile_and_closed_again(
    site: EvacuationSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    site.fill("orders", 2)
    for name, value in site.settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(site.folder)
    configuration = load(site.folder)
    file = TaskFile.model_validate(
        {
            "task": "orders",
            "source": {"connection": "west", "queue": "orders"},
            "routes": [{"target": {"connection": "east", "queue": "orders"}}],
        }
    )
    source = Entity(file.source, configuration.connections["west"])
    assert source.change("Active", "ReceiveDisabled") == "ReceiveDisabled"
    refused = site.evacuate("west/orders", yes=False)
    assert "has the status ReceiveDisabled" in refused.stdout
    pauses = {("west", "orders"): Pause(file, "Active")}
    pairs = pairs_of("west/orders", "east", configuration, pauses)
    assert asyncio.run(report.show(pairs, configuration, None))
    shown = capsys.readouterr().out
    assert "the task orders is paused, and its app may hold a batch of each lane" in shown
    assert "In all 8 messages: some seconds from here, and 32 operations, less than 0.01 USD" in shown
    assert source.status() == "ReceiveDisabled"
    assert asyncio.run(report.evacuate(pairs, configuration, Options()))
    assert source.status() == "ReceiveDisabled"
    assert site.names("orders", "west") == []
    assert len(site.names("orders", "east")) == 6  # and two dead letters


@pytest.mark.parametrize(
    ("count", "rate", "text"),
    [(100, None, "some seconds"), (100_000, None, "about 3 min"), (100_000, 10, "about 2.8 h")],
)
def test_an_evacuation_is_estimated_before_it_starts(count: int, rate: float | None, text: str) -> None:
    found = Survey()
    found.shares[Share.ACTIVE] = {str(number): None for number in range(count)}
    estimate = Estimate()
    estimate.add(found, 0.4)
    assert f": {text} from here, and {3 * count:,} operations" in estimate.text(rate)


def test_a_message_whose_id_the_target_has_seen_stays_and_is_named(site: EvacuationSite) -> None:
    """Azure/azure-service-bus 243: it is accepted and dropped, although nothing with its id is there any more."""
    due = {"x-opt-scheduled-enqueue-time": timestamp(round(DUE.timestamp() * 1000))}
    seen = [read_content(delivered(None, message_id=each)) for each in ("a", "s")]
    site.broker.inspect("east", lambda each: [each.target("once").publish(one) for one in seen])
    site.empty("east/once")
    site.publish("west/once", [delivered(None, message_id=each) for each in ("a", "b")])
    site.publish("west/once", [delivered(None, message_id=each, annotated=due) for each in ("s", "t")])
    for _ in range(2):
        done = site.evacuate("west/once")
        assert done.exit_code == 1
        assert "east/once accepted it, and it is not there: its id was seen before" in done.stdout
        assert site.names("once", "west") == ["a active", "s scheduled"]
        # While the outcome of one is not clear, the mark of the run stays.
        assert {name for name in site.names("once", "east") if "#" not in name} == {"b active", "t scheduled"}


@pytest.mark.parametrize("sides", [("west",), ("west", "east")])
def test_a_scheduled_message_that_is_due_before_it_is_cancelled_arrives_and_counts_once(
    site: EvacuationSite, monkeypatch: pytest.MonkeyPatch, sides: Sequence[str]
) -> None:
    """A run over many of them takes longer than the margin before the first is due, maybe at both sides."""
    complete = ScheduledSource.complete

    async def late(self: ScheduledSource, messages: Sequence[LockedMessage]) -> list[LockedMessage]:
        for side in sides:
            site.broker.inspect(side, lambda each: each.queue("orders").incoming.advance(due_at))
        return await complete(self, messages)

    due_at = round(DUE.timestamp() * 1000)
    due = {"x-opt-scheduled-enqueue-time": timestamp(due_at)}
    monkeypatch.setattr(ScheduledSource, "complete", late)
    monkeypatch.setattr("shared.resend.run._LOOK_AFTER_SECONDS", 0.1)
    site.publish("west/orders", [delivered(None, message_id=each, annotated=due) for each in ("a", "b")])
    done = site.evacuate("west/orders")
    assert done.exit_code == 0, done.stdout + done.stderr
    assert site.names("orders", "west") == []
    assert sorted(site.names("orders", "east")) == ["a active", "b active"]
    counts = [" ".join(line.split()) for line in done.stdout.splitlines() if "moved" in line or "gone" in line]
    assert counts[0].startswith("2 moved: "), counts
    assert len([line for line in counts if not line.startswith("verdicts")]) == 1, counts


def test_the_state_of_a_session_leaves_no_doubt_about_its_messages(
    site: EvacuationSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was sent before them, and is not among the messages of the target."""
    site.send("west/sessions", ServiceBusMessage("a", session_id="s", message_id="a"))
    with site.receiver("west/sessions", session_id="s") as receiver:
        receiver.session.set_state("state")
    with monkeypatch.context() as patch:
        patch.setattr(ServiceBusOutput, "send", killed)
        with pytest.raises(Killed):
            site.evacuate("west/sessions")
    again = site.evacuate("west/sessions")
    assert again.exit_code == 0, again.stdout + again.stderr
    assert (site.names("sessions", "east"), site.states("sessions", "east")) == (["a active"], {"s": b"state"})
