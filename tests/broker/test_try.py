"""`busway try` over the wire: what a task would make of what waits in its source, which stays as it was."""

import json
from pathlib import Path

import pytest
import yaml
from azure.eventhub import EventData, EventHubProducerClient
from azure.servicebus import ServiceBusMessage
from typer.testing import CliRunner

from cli.main import app

CONNECTIONS = {
    "west": {"kind": "service-bus", "setting": "WEST"},
    "east": {"kind": "service-bus", "setting": "EAST"},
    "hubs": {"kind": "event-hubs", "setting": "HUBS"},
}


@pytest.fixture
def run(broker, tmp_path: Path):
    """Run `busway try` on one task of a configuration of its own."""
    settings = {name.upper(): broker.connection_string(name) for name in CONNECTIONS}

    def run_task(*arguments, without=(), **task):
        (tmp_path / "tasks").mkdir(exist_ok=True)
        (tmp_path / "connections.yaml").write_text(yaml.safe_dump(CONNECTIONS))
        document = {"task": "copy", "routes": [{"target": {"connection": "east", "queue": "copies"}}], **task}
        (tmp_path / "tasks/copy.yaml").write_text(yaml.safe_dump(document))
        given = {name: None if name in without else value for name, value in settings.items()}
        return CliRunner().invoke(app, ["try", "copy", "--config", str(tmp_path), *arguments], env=given)

    return run_task


EDITORS = [{"filter": "kind <> 'test'"}, {"reduce": {"drop": ["[].note"]}}, {"split": {}}]


def test_what_waits_in_a_queue_is_shown_step_by_step_and_left_there(
    broker, entity, publish, run, tmp_path: Path
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
    task = {
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
    for told in (
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
        f"  → would be rejected (edited) and set aside in west/{queue}/$DeadLetterQueue",
        "  → would be withheld, filtered: withheld by an editor",
        "3 messages tried and left in place; would be: 2 sent, 1 rejected, 1 filtered",
    ):
        assert any(line.startswith(told) for line in result.output.splitlines()), told
    assert (broker.counts("west")[queue], broker.counts("east")) == before
    again = run("--messages", str(saved), **task)
    assert (again.exit_code, again.output) == (1, result.output)


def test_a_machine_gets_a_document_for_each_message(entity, publish, run) -> None:
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


def test_sessions_are_delivered_one_by_one(entity, publish, run) -> None:
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
    assert "  editors[0].batch: goes on with message 1" in result.output


def test_dead_letters_are_seen_in_their_queue(client, entity, publish, run) -> None:
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


def test_of_a_hub_the_last_events_of_the_partitions_of_the_task_are_seen(broker, entity, run) -> None:
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


def test_what_cannot_be_tried_is_told_with_another_exit_code(entity, run, tmp_path: Path) -> None:
    queue = {"source": {"connection": "west", "queue": entity("plain")}}
    empty = run("--peek", "1", **queue)
    assert (empty.exit_code, empty.stderr) == (2, f"west/{queue['source']['queue']}: holds no message to be tried\n")
    missing = run("--peek", "1", without=("WEST",), **queue)
    assert missing.exit_code == 2
    assert "WEST" in missing.stderr
    gone = run("--peek", "1", source={"connection": "west", "queue": "gone"})
    assert (gone.exit_code, "west/gone: it cannot be peeked" in gone.stderr) == (2, True)
    hub = run(
        "--peek", "1", source={"connection": "hubs", "hub": "gone"}, rejects={"connection": "west", "queue": "rejects"}
    )
    assert (hub.exit_code, "hubs/gone: cannot be read" in hub.stderr) == (2, True)
    assert run("--peek", "1", "--messages", str(tmp_path / "x"), **queue).exit_code == 2
    assert run("--messages", str(tmp_path / "x"), **queue).exit_code == 2
