"""`busway try` over the wire: it shows what a task would do with the messages at its source, and changes nothing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from azure.servicebus import ServiceBusMessage
from typer.testing import Result

from tests.site import Site

ENTITIES = """
west: {queues: {plain: , sessions: {requires_session: true}, rejects: }, hubs: {hub: {partition_count: 2}}}
east: {queues: [copies, express]}
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Site(tmp_path, ENTITIES) as site:
        yield site


def run(site: Site, *arguments: str, **task: Any) -> Result:
    """Run `busway try` for a task with the given keys."""
    routes = [{"target": {"connection": "east", "queue": "copies"}}]
    site.configure(yaml.safe_dump({"task": "copy", "routes": routes, **task}))
    return site.run("try", "copy", *arguments)


EDITORS = [{"filter": "kind <> 'test'"}, {"reduce": {"drop": ["[].note"]}}, {"split": {}}]


def test_messages_of_a_queue_are_shown_step_by_step_and_stay_there(site: Site, tmp_path: Path) -> None:
    site.send(
        "west/plain",
        *[
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
        "source": {"connection": "west", "queue": "plain"},
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
    before = site.broker.counts("west")["plain"], site.broker.counts("east")
    saved = tmp_path / "saved.jsonl"
    result = run(site, "--peek", "10", "--save", str(saved), **task)
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
        "  → would be rejected (edited) and sent to west/plain/$DeadLetterQueue",
        "  → would be withheld, filtered: withheld by an editor",
        "3 messages tried, nothing was changed; would be: 2 sent, 1 rejected, 1 filtered",
    ):
        assert any(line.startswith(text) for line in result.output.splitlines()), text
    assert (site.broker.counts("west")["plain"], site.broker.counts("east")) == before
    again = run(site, "--messages", str(saved), **task)
    assert (again.exit_code, again.output) == (1, result.output)


def test_json_output_has_a_document_for_each_message(site: Site) -> None:
    site.send("west/plain", ServiceBusMessage("text", message_id="a"))
    result = run(
        site,
        "--peek",
        "1",
        "--json",
        source={"connection": "west", "queue": "plain"},
        editors=[{"properties": {"action": "SET colour = 'red'"}}],
    )
    assert result.exit_code == 0
    (document,) = map(json.loads, result.output.splitlines())
    assert (document["source"], document["sequence_number"]) == ("west/plain", 1)
    assert document["message"] == {"message-id": '"a"', "body": "text"}
    assert document["steps"][1] == {
        "step": "editors[0].properties",
        "text": None,
        "messages": [{"property colour": {"before": None, "after": '"red"'}}],
    }
    assert document["ends"] == [
        {"outcome": "sent", "target": "east/copies", "reason": None, "stage": None, "part": None}
    ]


def test_sessions_are_delivered_one_by_one(site: Site) -> None:
    messages = (ServiceBusMessage(f"{n}", message_id=f"m{n}", session_id=f"s{n % 2}") for n in range(4))
    site.send("west/sessions", *messages)
    result = run(
        site,
        "--peek",
        "4",
        source={"connection": "west", "queue": "sessions", "sessions": True},
        editors=[{"batch": {}}],
    )
    assert result.exit_code == 0, result.output
    assert result.output.count("+ property batch-count: 2 (int)") == 2
    assert "message 2 of 4: m2, sequence number 3, session s0" in result.output
    assert "  editors[0].batch: continues with message 1" in result.output


def test_dead_letters_are_read_from_their_queue(site: Site) -> None:
    site.send("west/plain", ServiceBusMessage("text", message_id="a"))
    with site.receiver("west/plain") as receiver:
        (message,) = receiver.receive_messages(1)
        receiver.dead_letter_message(message, reason="why")
    result = run(
        site,
        "--peek",
        "1",
        source={"connection": "west", "queue": "plain", "dead_letter": True},
        rejects={"connection": "west", "queue": "rejects"},
    )
    assert result.exit_code == 0, result.output
    assert '+ property repl-dlq-reason: "why"' in result.output


def test_the_last_events_of_the_partitions_of_the_task_are_shown(site: Site) -> None:
    for n in range(6):
        site.publish_events("west/hub", f"event {n}", partition_id=str(n % 2))
    result = run(
        site,
        "--peek",
        "2",
        "--body",
        source={"connection": "hub-west", "hub": "hub", "consumer_group": "second", "partitions": [1]},
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


def test_a_dry_run_that_fails_has_another_exit_code(site: Site, tmp_path: Path) -> None:
    queue: dict[str, Any] = {"source": {"connection": "west", "queue": "plain"}}
    empty = run(site, "--peek", "1", **queue)
    assert (empty.exit_code, empty.stderr) == (2, f"west/{queue['source']['queue']}: has no messages to try\n")
    gone = run(site, "--peek", "1", source={"connection": "west", "queue": "gone"})
    assert (gone.exit_code, "west/gone: it cannot be peeked" in gone.stderr) == (2, True)
    rejects = {"connection": "west", "queue": "rejects"}
    hub = run(site, "--peek", "1", source={"connection": "hub-west", "hub": "gone"}, rejects=rejects)
    assert (hub.exit_code, "hub-west/gone: " in hub.stderr) == (2, True)
    assert run(site, "--peek", "1", "--messages", str(tmp_path / "x"), **queue).exit_code == 2
    assert run(site, "--messages", str(tmp_path / "x"), **queue).exit_code == 2
    del site.settings["WEST"]
    missing = run(site, "--peek", "1", **queue)
    assert (missing.exit_code, "WEST" in missing.stderr) == (2, True)
