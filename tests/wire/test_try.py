"""`busway try` over the wire: it shows what a task would do with the messages at its source, and changes nothing."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml
from azure.eventhub import EventData, EventHubProducerClient
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from typer.testing import CliRunner, Result

from broker.tests.sdk_calls import SendMessages, TakeEntity
from busway_broker.thread import RunningBroker
from cli.main import app

CONNECTIONS = {
    "west": {"kind": "service-bus", "setting": "WEST"},
    "east": {"kind": "service-bus", "setting": "EAST"},
    "hubs": {"kind": "event-hubs", "setting": "HUBS"},
}


class RunTask(Protocol):
    """Runs `busway try` for a task with the given keys; *without* names the settings that are missing."""

    def __call__(self, *arguments: str, without: Sequence[str] = (), **task: Any) -> Result: ...


@pytest.fixture
def run(broker: RunningBroker, tmp_path: Path) -> RunTask:
    """Return a function that runs `busway try` on one task of its own configuration."""
    settings = {name.upper(): broker.connection_string(name) for name in CONNECTIONS}

    def run_task(*arguments: str, without: Sequence[str] = (), **task: Any) -> Result:
        (tmp_path / "tasks").mkdir(exist_ok=True)
        (tmp_path / "connections.yaml").write_text(yaml.safe_dump(CONNECTIONS))
        document = {"task": "copy", "routes": [{"target": {"connection": "east", "queue": "copies"}}], **task}
        (tmp_path / "tasks/copy.yaml").write_text(yaml.safe_dump(document))
        given = {name: None if name in without else value for name, value in settings.items()}
        return CliRunner().invoke(app, ["try", "copy", "--config", str(tmp_path), *arguments], env=given)

    return run_task


EDITORS = [{"filter": "kind <> 'test'"}, {"reduce": {"drop": ["[].note"]}}, {"split": {}}]


def test_messages_of_a_queue_are_shown_step_by_step_and_stay_there(
    broker: RunningBroker, entity: TakeEntity, publish: SendMessages, run: RunTask, tmp_path: Path
) -> None:
    queue = entity("plain")
    publish(
        queue,
        [
            ServiceBusMessage(
                '[{"n": 1.50, "note": "x"}, {"n": 2}]',
                message_id="a",
                application_properties={"kind": "o", "priority": 7},
            ),
            ServiceBusMessage("no JSON", message_id="b", application_properties={"kind": "o"}),
            ServiceBusMessage("{}", message_id="c", application_properties={"kind": "test"}),
        ],
    )
    task: dict[str, Any] = {
        "source": {"connection": "west", "queue": queue},
        "editors": EDITORS,
        "routes": [
            {
                "when": "priority > 5",
                "action": "SET express = 1",
                "target": {"connection": "east", "queue": "express"},
            },
            {"target": {"connection": "east", "queue": "copies"}},
        ],
        "ttl": {"stamp": "PT2M"},
    }
    before = broker.counts("west")[queue], broker.counts("east")
    saved = tmp_path / "saved.jsonl"
    result = run("--peek", "10", "--save", str(saved), **task)
    assert result.exit_code == 1
    for text in (
        "message 1 of 3: a, sequence number 1",
        '    -       "note": "x"',
        '    +       "n": 1.50',
        "  editors[2].split: 2 messages",
        '    + property repl-path: "west"',
        "    + time-to-live: 120000 (uint)",
        "  routes, 2 of 2: to east/express",
        "    + property express: 1 (long)",
        "  → part 1: would be sent to east/express",
        "  editors[1].reduce: rejected: NotJson: reduce: body is not JSON, line 1 column 1: expecting value",
        f"  → would be rejected (edited) and sent to west/{queue}/$DeadLetterQueue",
        "  → would be withheld, filtered: withheld by an editor",
        "3 messages tried, nothing was changed; would be: 2 sent, 1 rejected, 1 filtered",
    ):
        assert any(line.startswith(text) for line in result.output.splitlines()), text
    assert (broker.counts("west")[queue], broker.counts("east")) == before
    again = run("--messages", str(saved), **task)
    assert (again.exit_code, again.output) == (1, result.output)


def test_json_output_has_a_document_for_each_message(entity: TakeEntity, publish: SendMessages, run: RunTask) -> None:
    queue = entity("plain")
    publish(queue, ServiceBusMessage("text", message_id="a"))
    result = run(
        "--peek",
        "1",
        "--json",
        source={"connection": "west", "queue": queue},
        editors=[{"properties": {"action": "SET colour = 'red'"}}],
    )
    assert result.exit_code == 0
    (document,) = map(json.loads, result.output.splitlines())
    assert (document["source"], document["sequence_number"]) == (f"west/{queue}", 1)
    assert document["message"] == {"message-id": '"a"', "body": "text"}
    assert document["steps"][1] == {
        "step": "editors[0].properties",
        "text": None,
        "messages": [{"property colour": {"before": None, "after": '"red"'}}],
    }
    assert document["ends"] == [
        {"outcome": "sent", "target": "east/copies", "reason": None, "stage": None, "part": None}
    ]


def test_sessions_are_delivered_one_by_one(entity: TakeEntity, publish: SendMessages, run: RunTask) -> None:
    queue = entity("sessions")
    publish(queue, [ServiceBusMessage(f"{n}", message_id=f"m{n}", session_id=f"s{n % 2}") for n in range(4)])
    result = run(
        "--peek",
        "4",
        source={"connection": "west", "queue": queue, "sessions": True},
        editors=[{"batch": {}}],
    )
    assert result.exit_code == 0, result.output
    assert result.output.count("+ property batch-count: 2 (int)") == 2
    assert "message 2 of 4: m2, sequence number 3, session s0" in result.output
    assert "  editors[0].batch: continues with message 1" in result.output


def test_dead_letters_are_read_from_their_queue(
    client: ServiceBusClient, entity: TakeEntity, publish: SendMessages, run: RunTask
) -> None:
    queue = entity("plain")
    publish(queue, ServiceBusMessage("text", message_id="a"))
    with client.get_queue_receiver(queue) as receiver:
        (message,) = receiver.receive_messages(1)
        receiver.dead_letter_message(message, reason="why")
    result = run(
        "--peek",
        "1",
        source={"connection": "west", "queue": queue, "dead_letter": True},
        rejects={"connection": "west", "queue": "rejects"},
    )
    assert result.exit_code == 0, result.output
    assert '+ property repl-dlq-reason: "why"' in result.output


def test_the_last_events_of_the_partitions_of_the_task_are_shown(
    broker: RunningBroker, entity: TakeEntity, run: RunTask
) -> None:
    hub = entity("hub")
    with EventHubProducerClient.from_connection_string(broker.connection_string("hubs"), eventhub_name=hub) as producer:
        for n in range(6):
            producer.send_batch([EventData(f"event {n}")], partition_id=str(n % 2))
    result = run(
        "--peek",
        "2",
        "--body",
        source={"connection": "hubs", "hub": hub, "consumer_group": "second", "partitions": [1]},
        rejects={"connection": "west", "queue": "rejects"},
    )
    assert result.exit_code == 0, result.output
    shown = [line.strip() for line in result.output.splitlines() if line.strip().startswith(("message ", "event "))]
    assert shown == [
        "message 1 of 2: sequence number 1, partition 1",
        "event 3",
        "message 2 of 2: sequence number 2, partition 1",
        "event 5",
    ]


def test_a_dry_run_that_fails_has_another_exit_code(entity: TakeEntity, run: RunTask, tmp_path: Path) -> None:
    queue: dict[str, Any] = {"source": {"connection": "west", "queue": entity("plain")}}
    empty = run("--peek", "1", **queue)
    assert (empty.exit_code, empty.stderr) == (2, f"west/{queue['source']['queue']}: has no messages to try\n")
    missing = run("--peek", "1", without=("WEST",), **queue)
    assert missing.exit_code == 2
    assert "WEST" in missing.stderr
    gone = run("--peek", "1", source={"connection": "west", "queue": "gone"})
    assert (gone.exit_code, "west/gone: it cannot be peeked" in gone.stderr) == (2, True)
    hub = run(
        "--peek", "1", source={"connection": "hubs", "hub": "gone"}, rejects={"connection": "west", "queue": "rejects"}
    )
    assert (hub.exit_code, "hubs/gone: " in hub.stderr) == (2, True)
    assert run("--peek", "1", "--messages", str(tmp_path / "x"), **queue).exit_code == 2
    assert run("--messages", str(tmp_path / "x"), **queue).exit_code == 2
