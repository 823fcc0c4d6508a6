"""The pytest plugin, in a pytest process of its own, with Microsoft's SDKs."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from busway_broker.admin.inspection import messages
from busway_broker.admin.messages import encode_message
from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.core.content import read_content
from busway_broker.thread import RunningBroker

pytestmark = pytest.mark.long

pytest_plugins = "pytester"

ROOT = Path(__file__).parents[2]
README = (ROOT / "broker/README.md").read_text(encoding="utf-8")
EXAMPLE = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0]

OTHERS = """
from datetime import timedelta

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import MessagingEntityNotFoundError

from busway_broker.config import QueueConfig


def send(string, queue, message):
    with ServiceBusClient.from_connection_string(string, retry_backoff_factor=0.01) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(message)


def test_messages_of_another_test_are_gone(busway_service_bus):
    assert busway_service_bus.counts(busway_service_bus.queue("orders")).active == 0


def test_expired_messages_are_in_the_dead_letter_queue(busway_service_bus, busway_clock):
    busway_service_bus.queue(QueueConfig(name="jobs", dead_lettering_on_message_expiration=True))
    send(busway_service_bus, "jobs", ServiceBusMessage("1", time_to_live=timedelta(hours=1), message_id="late"))
    assert busway_service_bus.counts("jobs").active == 1
    busway_clock.advance(3600)
    assert [each["message_id"] for each in busway_service_bus.messages("jobs/$DeadLetterQueue")] == ["late"]


def test_scheduled_messages_become_active(busway_service_bus, busway_clock):
    due = busway_clock.now() + timedelta(days=1)
    send(busway_service_bus, "jobs", ServiceBusMessage("1", scheduled_enqueue_time_utc=due))
    assert busway_service_bus.counts("jobs").scheduled == 1
    busway_clock.advance(timedelta(days=1))
    assert busway_service_bus.counts("jobs").active == 1


@pytest.mark.busway(queues=["orders"])
@pytest.mark.busway(topics={"prices": ["eu", "us"]}, hubs={"telemetry": 2})
def test_a_mark_declares_all_entities(busway_service_bus, busway_event_hubs):
    send(busway_service_bus, "prices", ServiceBusMessage("1"))
    assert [busway_service_bus.counts(f"prices/Subscriptions/{each}").active for each in ("eu", "us")] == [1, 1]
    with pytest.raises(MessagingEntityNotFoundError):
        send(busway_service_bus, "other", ServiceBusMessage("1"))
    with EventHubProducerClient.from_connection_string(busway_event_hubs, eventhub_name="telemetry") as producer:
        assert producer.get_partition_ids() == ["0", "1"]


@pytest.mark.busway(config="Config.json")
def test_a_file_declares_entities(busway_service_bus):
    assert busway_service_bus.counts("from-file").active == 0


def test_faults_and_events(busway_service_bus, busway_event_hubs, busway_faults):
    busway_faults.add("throttle", "orders", operations=["send"], times=1)
    send(busway_service_bus, "orders", ServiceBusMessage("1"))
    assert [each["struck"] for each in busway_faults.service_bus.plain()] == [1]
    assert busway_service_bus.counts("orders").active == 1
    hub = busway_event_hubs.hub("telemetry", partitions=2, consumer_groups=["second"])
    with EventHubProducerClient.from_connection_string(busway_event_hubs, eventhub_name=hub) as producer:
        producer.send_event(EventData("x"), partition_id="1")
        assert producer.get_partition_properties("1")["last_enqueued_sequence_number"] == 0


def test_bodies_are_shown(busway_service_bus, busway_event_hubs):
    send(busway_service_bus, "orders", ServiceBusMessage("text", application_properties={"priority": 5}))
    send(busway_service_bus, "orders", ServiceBusMessage(b"\\xff", subject="order"))
    first, second = busway_service_bus.messages("orders")
    assert (first["body"], first["application_properties"], "subject" in first) == ("text", {"priority": 5}, False)
    assert (second["body_base64"], second["subject"]) == ("/w==", "order")
    with EventHubProducerClient.from_connection_string(busway_event_hubs, eventhub_name="telemetry") as producer:
        producer.send_event(EventData("reading"), partition_id="1")
    assert [each["body"] for each in busway_event_hubs.events("telemetry", 1)] == ["reading"]
    assert busway_event_hubs.events("telemetry") == []


@pytest.mark.busway(queue=["orders"])
def test_a_misspelled_mark_is_an_error(busway_service_bus):
    pass
"""
SCOPES = """
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import MessagingEntityNotFoundError

pytestmark = pytest.mark.busway(queues=["orders"])


def send(string, queue):
    with ServiceBusClient.from_connection_string(string, retry_total=0) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("x"))


@pytest.mark.parametrize("place", [1, 2])
def test_a_module_shares_messages_and_declares_in_its_mark(place, busway_module_service_bus, busway_module_broker):
    send(busway_module_service_bus, "orders")
    assert busway_module_service_bus.counts("orders").active == place
    with pytest.raises(MessagingEntityNotFoundError):
        send(busway_module_service_bus, "other")
    if place == 2:
        busway_module_broker.reset()
        assert busway_module_service_bus.counts("orders").active == 0


@pytest.mark.parametrize("place", [1, 2])
def test_the_session_shares_the_entities_of_a_file(place, busway_session_service_bus):
    send(busway_session_service_bus, "from-file")
    assert busway_session_service_bus.counts("from-file").active == place


def test_a_clock_that_one_test_needs_is_that_of_all(busway_session_service_bus, busway_session_clock):
    before = busway_session_clock.now()
    busway_session_clock.advance(60)
    assert (busway_session_clock.now() - before).total_seconds() == 60
    assert busway_session_service_bus.counts("from-file").active == 2


def test_a_fixture_of_the_project_has_its_name_for_itself(service_bus):
    assert service_bus == "mine"


@pytest.fixture
def service_bus():
    return "mine"
"""
FILE = '{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Name": "from-file"}]}]}}'


def test_the_example_of_the_readme_and_all_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_example=EXAMPLE, test_others=OTHERS, test_scopes=SCOPES)
    pytester.makeini("[pytest]\nbusway_config = Config.json")
    (pytester.path / "Config.json").write_text(FILE, encoding="utf-8")
    result = pytester.runpytest_subprocess("--strict-markers", "-W", "error", "--durations=9")
    result.assert_outcomes(passed=14, errors=1)
    result.stdout.fnmatch_lines(["*UsageError*busway('queue',)*expected one of queues, topics, hubs, config*"])


def test_the_example_project_passes(pytester: pytest.Pytester) -> None:
    shutil.copytree(ROOT / "broker/examples", pytester.path, dirs_exist_ok=True)
    pytester.runpytest_subprocess("-W", "error").assert_outcomes(passed=4)


def test_the_plugin_alone_does_not_import_the_broker() -> None:
    script = """if True:
        import sys, busway_broker.pytest_plugin
        print([each for each in sys.modules if each.startswith("busway_broker.")])
    """
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603 - our own script
    assert done.stdout == "['busway_broker.pytest_plugin']\n"


def test_the_readme_lists_the_keys_of_a_message() -> None:
    listed = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`\w+`.*?) \|", README, re.MULTILINE))))
    written = {"body", "body_base64", "application_properties", "dead_letter_reason", "dead_letter_description"}
    with RunningBroker([NamespaceConfig(name="west", queues=(QueueConfig(name="orders"),))]) as broker:
        content = read_content(encode_message({"message_id": "1", "body": "x"}))
        shown = broker.inspect(
            "west", lambda west: (west.target("orders").publish(content), messages(west, "orders", "1"))[1]
        )
    assert set(shown[0]) | written <= listed


def test_the_example_replaces_a_mock_in_ten_lines() -> None:
    assert len([line for line in EXAMPLE.splitlines() if line.strip() and "import" not in line]) <= 10
