"""What `busway plan`, `apply` and `export` report about entities that others have made or changed."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient
from typer.testing import CliRunner

from busway_broker.admin.thread import RunningAdmin
from busway_broker.config import NamespaceConfig, SharedAccessKey
from busway_broker.config_file import load_config
from busway_broker.thread import RunningBroker
from cli.main import app
from tests.site import Site
from tests.wire.topology_pair import SITES, pair

__all__ = ["pair"]

# azure-servicebus tests the truth value of XML elements.
pytestmark = pytest.mark.filterwarnings("ignore:Testing an element's truth value:DeprecationWarning")


def test_apply_without_yes_is_a_plan(pair: Site) -> None:
    shown = pair.run("apply")
    assert (shown.exit_code, shown.stderr) == (3, "Nothing was changed: --yes does it.\n")
    assert shown.stdout in pair.run("plan").stdout
    assert list(pair.administrator("west").list_queues()) == []


def test_drift_on_one_twin_is_found_and_what_the_tasks_decide_is_put_right(pair: Site) -> None:
    pair.run("apply", "--yes")
    client = pair.administrator("east")
    topic = client.get_topic("orders")
    topic.default_message_time_to_live = timedelta(days=1)
    client.update_topic(topic)
    subscription = client.get_subscription("orders", "replication")
    subscription.max_delivery_count = 3
    client.update_subscription("orders", subscription)
    client.create_subscription("orders", "audit")
    # topology.yaml decides this for both sites, so it is an obstacle of one and no drift.
    client.delete_subscription("orders", "application")
    client.create_subscription("orders", "application", requires_session=False, max_delivery_count=20)

    plan = json.loads(pair.run("plan", "--json").output)
    [step] = plan["sites"]["east"]["steps"]
    assert (step["entity"], step["settings"]) == ("subscription orders/replication", {"max_delivery_count": 4320})
    assert [each["entity"] for each in plan["sites"]["east"]["cannot_change"]] == ["subscription orders/application"]
    assert [(each["entity"], each["what"]) for each in plan["drift"]] == [
        ("topic orders", "default_message_time_to_live"),
        ("subscription orders/audit", "exists on one side"),
    ]
    assert pair.run("apply", "--yes").exit_code == 4
    assert client.get_subscription("orders", "replication").max_delivery_count == 4320


def test_export_of_what_apply_made_has_no_difference_and_runs_on_the_broker(pair: Site) -> None:
    pair.run("apply", "--yes")
    client = pair.administrator("west")
    queue = client.create_queue("shop", enable_partitioning=True, max_size_in_megabytes=2048)
    queue.status = "SendDisabled"
    queue.forward_dead_lettered_messages_to = "orders-rejected"
    client.update_queue(queue)
    entities = pair.folder / "entities"
    for site in SITES:
        result = pair.run("export", site, "--output", str(entities / f"{site}.json"))
        assert result.exit_code == 0, result.output
    files = [argument for site in SITES for argument in ("--entities", str(entities / f"{site}.json"))]
    offline = CliRunner(env={}).invoke(app, ["plan", "--config", str(pair.folder), *files])
    assert (offline.exit_code, offline.output.splitlines()[0]) == (0, "Every entity is as the tasks need it.")
    checked = CliRunner().invoke(app, ["check", str(pair.folder)])
    assert checked.exit_code == 0, checked.output
    assert "warning" not in checked.output

    [exported] = load_config([entities / "west.json"])
    [shop] = [queue for queue in exported.queues if queue.name == "shop"]
    assert (shop.status, shop.enable_partitioning, shop.max_size) == ("SendDisabled", True, 2048)
    assert shop.forward_dead_lettered_messages_to == "orders-rejected"
    # The broker that runs the export exports the same.
    with RunningBroker([exported]) as broker, RunningAdmin(broker) as admin:
        there = {
            "WEST": broker.connection_string("sbemulatorns"),
            "WEST__administration": admin.address("sbemulatorns"),
        }
        again = pair.run("export", "west", **there)
    assert again.output == (entities / "west.json").read_text(encoding="utf-8")


def test_prune_deletes_only_what_apply_has_created_and_only_if_it_is_empty(pair: Site) -> None:
    pair.run("apply", "--yes")
    client = pair.administrator("west")
    client.create_queue("theirs")
    for name in ("empty", "full"):
        client.create_queue(name, user_metadata="busway: a task of yesterday")
    # The counts of the administration do not have it yet.
    pair.send("west/full", ServiceBusMessage(b"x"))
    assert client.get_queue_runtime_properties("full").total_message_count == 0
    kept = pair.run("plan")
    assert (kept.exit_code, "2 to delete with --prune" in kept.output) == (0, True)
    pruned = pair.run("apply", "--prune", "--yes")
    assert pruned.exit_code == 1
    # On a busy machine the counts may have it by now.
    assert "queue full: holds messages" in pruned.output.replace("holds 1 messages", "holds messages")
    assert {queue.name for queue in client.list_queues()} == {"orders-rejected", "theirs", "full"}


def test_a_namespace_that_may_not_be_read_does_not_hide_the_other(pair: Site) -> None:
    guarded = NamespaceConfig(name="east", shared_access_keys=(SharedAccessKey(name="owner", key="k" * 40),))
    with RunningBroker([guarded]) as broker, RunningAdmin(broker) as admin:
        wrong = broker.connection_string("east").replace("k" * 40, "w" * 40)
        result = pair.run("plan", EAST=wrong, EAST__administration=admin.address("east"))
    assert result.exit_code == 1
    assert result.output.startswith("Not read: east; elsewhere 4 steps to take.\n")
    assert "does not know this key or identity" in result.output
    assert "the role Azure Service Bus Data Owner" in result.output
    assert "w" * 40 not in result.output


def test_an_administration_with_https_is_trusted_by_the_certificate_in_ssl_cert_file(
    pair: Site, tmp_path: Path
) -> None:
    with RunningAdmin(pair.broker, tmp_path / "tls") as admin:
        there = {"WEST__administration": admin.address("west")}
        assert pair.run("plan", "west", **there).exit_code == 1
        assert pair.run("plan", "west", **there, SSL_CERT_FILE=str(admin.authority)).exit_code == 3


def test_config_json_for_the_emulators_is_within_their_limits(pair: Site, tmp_path: Path) -> None:
    target = tmp_path / "emulators"
    result = pair.run("plan", "--config-json", str(target))
    assert result.exit_code == 0, result.output
    assert "max_delivery_count 10 instead of 4320" in result.output
    for site in SITES:
        [namespace] = load_config([target / f"{site}.json"], is_strict=True)
        assert [topic.name for topic in namespace.topics] == ["orders"]
        [rule] = namespace.topics[0].subscriptions[1].rules
        assert str(rule.filter) == "replication IS NULL"


def test_config_json_keeps_what_a_file_has_besides(pair: Site, tmp_path: Path) -> None:
    own = {"Name": "by-hand", "Properties": {"LockDuration": "PT30S"}, "Rules": []}
    orders = {"Name": "ORDERS", "Properties": {"DefaultMessageTimeToLive": "PT5M"}, "Subscriptions": [own]}
    queue = {"Name": "mine", "Properties": {}}
    namespace = {"Name": "sbemulatorns", "Queues": [queue], "Topics": [orders], "MaxMessageSizeInKilobytes": 512}
    document = json.dumps({"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "File"}}})
    (tmp_path / "west.json").write_text(f"// by hand\n{document}")
    before = None
    for _ in range(2):
        result = pair.run("plan", "--config-json", str(tmp_path))
        assert result.exit_code == 0, result.output
        assert "west.json: 4 entities, beside those that it had\n" in result.stdout
        (read,) = load_config([tmp_path / "west.json"])
        assert [queue.name for queue in read.queues] == ["mine", "orders-rejected"]
        (topic,) = read.topics
        assert (topic.name, topic.default_message_time_to_live) == ("ORDERS", timedelta(minutes=5))
        names = [subscription.name for subscription in topic.subscriptions]
        assert names[0] == "by-hand"
        assert len(names) == 3
        assert str(topic.subscriptions[-1].rules[0].filter) == "replication IS NULL"
        assert read.max_message_size == 512 * 1024
        assert before in (None, (tmp_path / "west.json").read_text())
        before = (tmp_path / "west.json").read_text()


def test_a_hundred_tasks_get_their_entities(pair: Site) -> None:
    document = "\n---\n".join(
        f"task: t{number}\nsource: {{connection: west, queue: q{number}}}\n"
        f"routes: [{{target: {{connection: east, queue: q{number}}}}}]"
        for number in range(100)
    )
    pair.configure(document)
    (pair.folder / "topology.yaml").unlink()
    applied = pair.run("apply", "--yes")
    assert applied.exit_code == 0, applied.output[-500:]
    assert "200 steps taken." in applied.output


type Administer = Callable[[ServiceBusAdministrationClient], object]


@pytest.mark.parametrize(
    ("administer", "expected"),
    [
        (lambda client: client.create_queue("orders"), "is a queue in the namespace, and the tasks need a topic"),
        (
            lambda client: client.create_queue("orders-rejected", requires_session=True),
            "cannot change in place: has requires_session true, needs false",
        ),
    ],
)
def test_what_cannot_change_in_place_has_a_way_round(pair: Site, administer: Administer, expected: str) -> None:
    administer(pair.administrator("west"))
    result = pair.run("plan", "west")
    assert expected in result.output
    assert "way round: " in result.output
    assert pair.run("apply", "--yes").exit_code in {1, 4}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"enable_partitioning": True, "requires_duplicate_detection": True}, "Such an entity takes no batches"),
        ({"enable_partitioning": True}, "west/orders: does not detect duplicates, because it is partitioned"),
        ({"support_ordering": False}, "west/orders: The topic does not support ordering"),
        ({"auto_delete_on_idle": timedelta(hours=1)}, "west/orders: The entity deletes itself"),
        ({"requires_duplicate_detection": True}, ""),
    ],
)
def test_plan_warns_of_a_topic_that_takes_no_batches_keeps_no_order_or_deletes_itself(
    pair: Site, settings: dict[str, Any], expected: str
) -> None:
    pair.administrator("west").create_topic("orders", **settings)
    lines = [line for line in pair.run("plan", "west").output.splitlines() if line.startswith("  ! west/")]
    assert len(lines) == bool(expected)
    assert expected in "".join(lines)


def test_plan_warns_of_what_topology_makes_partitioned_before_it_is_created(pair: Site) -> None:
    topic = pair.folder / "topology.yaml"
    topic.write_text("west: {topics: {orders: {partitioned: true, duplicate_detection: true}}}")
    assert "west/orders: The target is partitioned and detects duplicates." in pair.run("plan", "west").output
    topic.write_text("west: {topics: {orders: {partitioned: true}}}")
    pair.run("apply", "--yes")
    created = pair.administrator("west").get_topic("orders")
    assert (created.enable_partitioning, created.requires_duplicate_detection) == (True, False)
