"""`busway plan`, `apply` and `export` with the local broker, over the administration API that the SDKs use."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient, SqlRuleFilter
from typer.testing import CliRunner, Result

from busway_broker.admin.thread import RunningAdmin
from busway_broker.config import NamespaceConfig, SharedAccessKey
from busway_broker.config_file import load_config
from busway_broker.thread import RunningBroker
from cli.main import app
from cli.topology import application
from cli.topology.difference import Step
from shared.ends.service_bus.administration import administration_client

# azure-servicebus tests the truth value of XML elements.
pytestmark = pytest.mark.filterwarnings("ignore:Testing an element's truth value:DeprecationWarning")

ROOT = Path(__file__).parents[2]
TASKS = (ROOT / "config/examples/all-active/tasks/all-active.yaml").read_text(encoding="utf-8")
CONNECTIONS = (ROOT / "config/examples/all-active/connections.yaml").read_text(encoding="utf-8")
TOPOLOGY = """
west: {topics: {orders: {subscriptions: {application: {sessions: true, max_delivery_count: 20}}}}}
east: {topics: {orders: {subscriptions: {application: {sessions: true, max_delivery_count: 20}}}}}
"""
SITES = ("west", "east")


class Pair:
    """Two namespaces, empty at first, and the commands that administer them."""

    def __init__(self, broker: RunningBroker, admin: RunningAdmin, folder: Path) -> None:
        self.broker, self.admin, self.folder = broker, admin, folder
        self.settings = {site.upper(): broker.connection_string(site) for site in SITES}
        self.options = ["--config", str(folder)]
        for site in SITES:
            self.options += ["--admin", f"{site}={admin.address(site)}"]

    def run(self, command: str, *options: str) -> Result:
        return CliRunner(env=self.settings).invoke(app, [command, *options, *self.options])

    def client(self, site: str) -> ServiceBusAdministrationClient:
        return administration_client(site.upper(), self.settings, address=self.admin.address(site))

    def clear(self) -> None:
        for site in SITES:
            client = self.client(site)
            for queue in client.list_queues():
                client.delete_queue(queue.name)
            for topic in client.list_topics():
                client.delete_topic(topic.name)


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[RunningBroker, RunningAdmin]]:
    with RunningBroker([NamespaceConfig(name=site) for site in SITES]) as broker, RunningAdmin(broker) as admin:
        yield broker, admin


@pytest.fixture
def pair(running: tuple[RunningBroker, RunningAdmin], tmp_path: Path) -> Iterator[Pair]:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks/orders.yaml").write_text(TASKS)
    (tmp_path / "connections.yaml").write_text(CONNECTIONS)
    (tmp_path / "topology.yaml").write_text(TOPOLOGY)
    pair = Pair(*running, tmp_path)
    yield pair
    pair.clear()


def test_an_empty_pair_gets_what_its_tasks_need_and_a_second_run_changes_nothing(pair: Pair) -> None:
    planned = pair.run("plan")
    assert planned.exit_code == 3
    assert planned.output.startswith("8 steps to take.\n")
    applied = pair.run("apply", "--yes")
    assert applied.exit_code == 0, applied.output
    assert applied.output.endswith("8 steps taken. Every entity is as the tasks need it.\n")
    again = pair.run("apply", "--yes")
    assert (again.exit_code, again.output.splitlines()[0]) == (0, "Every entity is as the tasks need it.")

    client = pair.client("west")
    subscription = client.get_subscription("orders", "replication")
    assert (subscription.requires_session, subscription.max_delivery_count) == (True, 4320)
    [rule] = client.list_rules("orders", "replication")
    assert rule.name == "busway"
    assert rule.action is not None
    assert rule.action.sql_expression == "SET replication = 1"
    assert client.get_queue("orders-rejected").requires_duplicate_detection is False


def test_a_replica_is_marked_from_the_first_message_on(pair: Pair) -> None:
    """A new subscription must not have `$Default` for a moment: what passes then bounces."""
    pair.client("west").create_topic("orders")
    ends = threading.Event()

    def send() -> None:
        with (
            ServiceBusClient.from_connection_string(pair.settings["WEST"]) as client,
            client.get_topic_sender("orders") as sender,
        ):
            while not ends.is_set():
                sender.send_messages(ServiceBusMessage(b"x", session_id="one"))

    sending = threading.Thread(target=send)
    sending.start()
    try:
        assert pair.run("apply", "--yes").exit_code == 4  # the topic was created without duplicate detection: drift
    finally:
        ends.set()
        sending.join()
    with (
        ServiceBusClient.from_connection_string(pair.settings["WEST"]) as client,
        client.get_subscription_receiver("orders", "replication", session_id="one") as receiver,
    ):
        received = receiver.receive_messages(1000, max_wait_time=2)
    assert received
    assert all((each.application_properties or {}).get(b"replication") == 1 for each in received)


def test_replacing_a_rule_under_traffic_loses_and_doubles_no_message(pair: Pair) -> None:
    pair.run("apply", "--yes")
    client = pair.client("west")
    client.delete_rule("orders", "replication", "busway")
    client.create_rule("orders", "replication", "$Default")
    sent = 0
    ends = threading.Event()

    def send() -> None:
        nonlocal sent
        with (
            ServiceBusClient.from_connection_string(pair.settings["WEST"]) as service_bus,
            service_bus.get_topic_sender("orders") as sender,
        ):
            while not ends.is_set() or sent < 20:
                sender.send_messages(ServiceBusMessage(b"x", session_id="one", message_id=f"m{sent}"))
                sent += 1

    sending = threading.Thread(target=send)
    sending.start()
    try:
        changed = pair.run("apply", "--yes")
    finally:
        ends.set()
        sending.join()
    assert changed.exit_code == 0, changed.output
    [rule] = client.list_rules("orders", "replication")
    assert isinstance(rule.filter, SqlRuleFilter)
    assert rule.filter.sql_expression == "replication IS NULL"
    assert pair.broker.counts("west")["orders/Subscriptions/replication"].active == sent


def test_an_apply_that_is_refused_in_the_middle_names_the_step_and_the_next_finishes(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    carry_out = application._carry_out

    def refused(client: ServiceBusAdministrationClient, step: Step) -> None:
        if str(step.name) == "topic orders":
            raise HttpResponseError("quota")
        carry_out(client, step)

    with monkeypatch.context() as patched:
        patched.setattr(application, "_carry_out", refused)
        half = pair.run("apply", "--yes")
    assert half.exit_code == 1
    assert "failed west: create topic orders: west topic orders: cannot be reached: quota" in half.output
    assert "west: create subscription orders/application: skipped, because it needs topic orders" in half.output
    assert "2 steps taken, 2 failed, 4 skipped." in half.output
    rest = pair.run("apply", "--yes")
    assert (rest.exit_code, "6 steps taken." in rest.output) == (0, True)


class Killed(BaseException):
    """Ends a command where it is: nothing catches it."""


@pytest.mark.parametrize("steps", range(8))
def test_an_apply_that_ends_after_any_step_is_finished_by_the_next(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    carry_out = application._carry_out
    taken = 0

    def killed(client: ServiceBusAdministrationClient, step: Step) -> None:
        nonlocal taken
        if taken == steps:
            raise Killed
        carry_out(client, step)
        taken += 1

    with monkeypatch.context() as patched:
        patched.setattr(application, "_carry_out", killed)
        with pytest.raises(Killed):
            pair.run("apply", "--yes")
    rest = pair.run("apply", "--yes")
    assert (rest.exit_code, f"{8 - steps} step" in rest.output) == (0, True)


def test_an_apply_whose_process_is_killed_is_finished_by_the_next(pair: Pair) -> None:
    command = [sys.executable, "-u", "-m", "cli", "apply", "--yes", *pair.options]
    environment = {**os.environ, **pair.settings}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT) as process:  # noqa: S603
        assert process.stdout is not None
        assert any(line.startswith("done") for line in process.stdout)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert pair.run("apply", "--yes").exit_code == 0


def test_ctrl_c_says_how_far_it_came(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    carry_out = application._carry_out

    def interrupted(client: ServiceBusAdministrationClient, step: Step) -> None:
        carry_out(client, step)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(application, "_carry_out", interrupted)
        cancelled = pair.run("apply", "--yes")
    assert cancelled.exit_code == 130
    assert "Cancelled after 0 steps taken. Run the command again for the rest." in cancelled.output
    assert pair.run("apply", "--yes").exit_code == 0


def test_apply_without_yes_is_a_plan(pair: Pair) -> None:
    shown = pair.run("apply")
    assert (shown.exit_code, shown.stderr) == (3, "Nothing was changed: --yes does it.\n")
    assert shown.stdout in pair.run("plan").stdout
    assert list(pair.client("west").list_queues()) == []


def test_drift_on_one_twin_is_found_and_what_the_tasks_decide_is_put_right(pair: Pair) -> None:
    pair.run("apply", "--yes")
    client = pair.client("east")
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


def test_export_of_what_apply_made_has_no_difference_and_runs_on_the_broker(pair: Pair) -> None:
    pair.run("apply", "--yes")
    client = pair.client("west")
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
    [shop] = [each for each in exported.queues if each.name == "shop"]
    assert (shop.status, shop.enable_partitioning, shop.max_size) == ("SendDisabled", True, 2048)
    assert shop.forward_dead_lettered_messages_to == "orders-rejected"
    # The broker that runs the export exports the same.
    with RunningBroker([exported]) as broker, RunningAdmin(broker) as admin:
        options = ["--config", str(pair.folder), "--admin", f"west={admin.address('sbemulatorns')}"]
        environment = {"WEST": broker.connection_string("sbemulatorns")}
        again = CliRunner(env=environment).invoke(app, ["export", "west", *options])
    assert again.output == (entities / "west.json").read_text(encoding="utf-8")


def test_prune_deletes_only_what_apply_has_created_and_only_if_it_is_empty(pair: Pair) -> None:
    pair.run("apply", "--yes")
    client = pair.client("west")
    client.create_queue("theirs")
    for name in ("empty", "full"):
        client.create_queue(name, user_metadata="busway: a task of yesterday")
    with (
        ServiceBusClient.from_connection_string(pair.settings["WEST"]) as service_bus,
        service_bus.get_queue_sender("full") as sender,
    ):
        # The counts of the administration do not have it yet.
        sender.send_messages(ServiceBusMessage(b"x"))
    assert client.get_queue_runtime_properties("full").total_message_count == 0
    kept = pair.run("plan")
    assert (kept.exit_code, "2 to delete with --prune" in kept.output) == (0, True)
    pruned = pair.run("apply", "--prune", "--yes")
    assert pruned.exit_code == 1
    assert "queue full: holds messages" in pruned.output
    assert {queue.name for queue in client.list_queues()} == {"orders-rejected", "theirs", "full"}


def test_a_namespace_that_may_not_be_read_does_not_hide_the_other(pair: Pair) -> None:
    guarded = NamespaceConfig(name="east", shared_access_keys=(SharedAccessKey(name="owner", key="k" * 40),))
    with RunningBroker([guarded]) as broker, RunningAdmin(broker) as admin:
        pair.settings["EAST"] = broker.connection_string("east").replace("k" * 40, "w" * 40)
        options = [*pair.options[:4], "--admin", f"east={admin.address('east')}"]
        result = CliRunner(env=pair.settings).invoke(app, ["plan", *options])
    assert result.exit_code == 1
    assert result.output.startswith("Not read: east; elsewhere 4 steps to take.\n")
    assert "does not know this key or identity" in result.output
    assert "the role Azure Service Bus Data Owner" in result.output
    assert "w" * 40 not in result.output


def test_config_json_for_the_emulators_is_within_their_limits(pair: Pair, tmp_path: Path) -> None:
    target = tmp_path / "emulators"
    result = pair.run("plan", "--config-json", str(target))
    assert result.exit_code == 0, result.output
    assert "max_delivery_count 10 instead of 4320" in result.output
    for site in SITES:
        [namespace] = load_config([target / f"{site}.json"], is_strict=True)
        assert [topic.name for topic in namespace.topics] == ["orders"]
        [rule] = namespace.topics[0].subscriptions[1].rules
        assert str(rule.filter) == "replication IS NULL"
    services = yaml.safe_load((target / "compose.yaml").read_text())["services"]
    assert {each: services[each]["ports"][0] for each in SITES} == {
        "west": "127.0.0.1:5672:5672",
        "east": "127.0.0.1:5673:5672",
    }
    for each in SITES:
        assert services[each]["volumes"] == [f"./{each}.json:/ServiceBus_Emulator/ConfigFiles/Config.json:ro"]
    repository = yaml.safe_load((ROOT / "infra/emulators/compose.yaml").read_text())["services"]
    images = {each["image"] for each in repository.values()}
    assert {each["image"] for each in services.values()} <= images
    assert not [each for each in images if each.endswith("latest")]


def test_config_json_keeps_what_a_file_has_besides(pair: Pair, tmp_path: Path) -> None:
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
        assert [each.name for each in read.queues] == ["mine", "orders-rejected"]
        (topic,) = read.topics
        assert (topic.name, topic.default_message_time_to_live) == ("ORDERS", timedelta(minutes=5))
        names = [each.name for each in topic.subscriptions]
        assert names[0] == "by-hand"
        assert len(names) == 3
        assert str(topic.subscriptions[-1].rules[0].filter) == "replication IS NULL"
        assert read.max_message_size == 512 * 1024
        assert before in (None, (tmp_path / "west.json").read_text())
        before = (tmp_path / "west.json").read_text()


def test_a_hundred_tasks_get_their_entities(pair: Pair) -> None:
    document = "\n---\n".join(
        f"task: t{number}\nsource: {{connection: west, queue: q{number}}}\n"
        f"routes: [{{target: {{connection: east, queue: q{number}}}}}]"
        for number in range(100)
    )
    (pair.folder / "tasks/orders.yaml").write_text(document)
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
def test_what_cannot_change_in_place_has_a_way_round(pair: Pair, administer: Administer, expected: str) -> None:
    administer(pair.client("west"))
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
        ({"requires_duplicate_detection": True}, ""),
    ],
)
def test_plan_warns_of_a_topic_that_takes_no_batches_or_keeps_no_order(
    pair: Pair, settings: dict[str, Any], expected: str
) -> None:
    pair.client("west").create_topic("orders", **settings)
    lines = [line for line in pair.run("plan", "west").output.splitlines() if line.startswith("  ! west/")]
    assert len(lines) == bool(expected)
    assert expected in "".join(lines)


def test_plan_warns_of_what_topology_makes_partitioned_before_it_is_created(pair: Pair) -> None:
    topic = pair.folder / "topology.yaml"
    topic.write_text("west: {topics: {orders: {partitioned: true, duplicate_detection: true}}}")
    assert "west/orders: The target is partitioned and detects duplicates." in pair.run("plan", "west").output
    topic.write_text("west: {topics: {orders: {partitioned: true}}}")
    pair.run("apply", "--yes")
    created = pair.client("west").get_topic("orders")
    assert (created.enable_partitioning, created.requires_duplicate_detection) == (True, False)
