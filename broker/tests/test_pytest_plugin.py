"""The pytest plugin, in a pytest process of its own, with Microsoft's SDKs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_messages_of_another_test_are_gone(service_bus):
    assert service_bus.counts(service_bus.queue("orders")).active == 0


def test_expired_messages_are_in_the_dead_letter_queue(service_bus, busway_clock):
    service_bus.queue(QueueConfig(name="jobs", dead_lettering_on_message_expiration=True))
    send(service_bus, "jobs", ServiceBusMessage("1", time_to_live=timedelta(hours=1), message_id="late"))
    assert service_bus.counts("jobs").active == 1
    busway_clock.advance(3600)
    assert [each["message_id"] for each in service_bus.messages("jobs/$DeadLetterQueue")] == ["late"]


def test_scheduled_messages_become_active(service_bus, busway_clock):
    due = busway_clock.now() + timedelta(days=1)
    send(service_bus, "jobs", ServiceBusMessage("1", scheduled_enqueue_time_utc=due))
    assert service_bus.counts("jobs").scheduled == 1
    busway_clock.advance(timedelta(days=1))
    assert service_bus.counts("jobs").active == 1


@pytest.mark.busway(queues=["orders"])
@pytest.mark.busway(topics={"prices": ["eu", "us"]}, hubs={"telemetry": 2})
def test_a_mark_declares_all_entities(service_bus, event_hubs):
    send(service_bus, "prices", ServiceBusMessage("1"))
    assert [service_bus.counts(f"prices/Subscriptions/{each}").active for each in ("eu", "us")] == [1, 1]
    with pytest.raises(MessagingEntityNotFoundError):
        send(service_bus, "other", ServiceBusMessage("1"))
    with EventHubProducerClient.from_connection_string(event_hubs, eventhub_name="telemetry") as producer:
        assert producer.get_partition_ids() == ["0", "1"]


@pytest.mark.busway(config="Config.json")
def test_a_file_declares_entities(service_bus):
    assert service_bus.counts("from-file").active == 0


def test_faults_and_events(service_bus, event_hubs, busway_faults):
    busway_faults.add("throttle", "orders", operations=["send"], times=1)
    send(service_bus, "orders", ServiceBusMessage("1"))
    assert [each["struck"] for each in busway_faults.service_bus.plain()] == [1]
    assert service_bus.counts("orders").active == 1
    hub = event_hubs.hub("telemetry", partitions=2, consumer_groups=["second"])
    with EventHubProducerClient.from_connection_string(event_hubs, eventhub_name=hub) as producer:
        producer.send_event(EventData("x"), partition_id="1")
        assert producer.get_partition_properties("1")["last_enqueued_sequence_number"] == 0


@pytest.mark.busway(queue=["orders"])
def test_a_misspelled_mark_is_an_error(service_bus):
    pass
"""
FILE = '{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Name": "from-file"}]}]}}'


def test_the_example_of_the_readme_and_all_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_example=EXAMPLE, test_others=OTHERS)
    (pytester.path / "Config.json").write_text(FILE, encoding="utf-8")
    result = pytester.runpytest_subprocess("--strict-markers", "-W", "error", "--durations=9")
    result.assert_outcomes(passed=7, errors=1)
    result.stdout.fnmatch_lines(["*UsageError*busway('queue',)*expected one of queues, topics, hubs, config*"])


def test_the_plugin_alone_does_not_import_the_broker() -> None:
    script = """if True:
        import sys, busway_broker.pytest_plugin
        print([each for each in sys.modules if each.startswith("busway_broker.")])
    """
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603 - our own script
    assert done.stdout == "['busway_broker.pytest_plugin']\n"


def test_the_example_replaces_a_mock_in_ten_lines() -> None:
    assert len([line for line in EXAMPLE.splitlines() if line.strip() and "import" not in line]) <= 10
