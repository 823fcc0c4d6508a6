"""Files that ServiceBusExplorer has saved."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cli.dry_run.messages import read_messages
from cli.letters.export_file import exported_keys
from shared.errors import ConfigError
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.resend.places import Place

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SAVED: dict[str, Any] = {
    "body": {"orderId": 7, "lines": [1]},
    "contentType": "application/json",
    "correlationId": "c",
    "deadLetterSource": None,
    "deliveryCount": 1,
    "enqueuedTimeUtc": "2026-08-13T07:49:14.7043957Z",
    "expiresAtUtc": "9999-12-31T23:59:59.9999999",
    "label": "order",
    "lockToken": None,
    "messageId": "m",
    "partitionKey": None,
    "properties": {"Intent": "Publish", "n": 7, "rate": 0.5, "none": None, "$.diagnostics.id": "0"},
    "scheduledEnqueueTimeUtc": "0001-01-01T00:00:00",
    "sequenceNumber": 5,
    "sessionId": None,
    "timeToLive": "10675199.02:48:05.4775807",
}


def saved(tmp_path: Path, content: object, *, mark: str = "") -> Path:
    file = tmp_path / "saved.json"
    file.write_text(mark + json.dumps(content, indent=2), encoding="utf-8")
    return file


def read(file: Path) -> list[Message]:
    return [Message.received(message.content, Origin("w", "q")) for message in read_messages(file, NOW)]


@pytest.mark.parametrize(("content", "count"), [(SAVED, 1), ([SAVED], 1), ([SAVED, SAVED], 2)])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_try_reads_one_message_and_a_list(tmp_path: Path, content: object, count: int, mark: str) -> None:
    messages = read(saved(tmp_path, content, mark=mark))
    assert len(messages) == count
    message = messages[0]
    assert message.body == b'{"orderId":7,"lines":[1]}'
    assert (message.content_type, message.subject, message.session_id) == ("application/json", "order", None)
    assert (message.arrival.sequence_number, message.arrival.enqueued_time) == (5, 1786607354704)
    assert message.time_to_live is None
    found = {name: value.payload for name, value in message.application_properties()}
    assert found == {"Intent": "Publish", "n": 7, "rate": 0.5, "none": None, "$.diagnostics.id": "0"}


def test_a_life_and_a_body_of_text_are_kept(tmp_path: Path) -> None:
    (message,) = read(saved(tmp_path, SAVED | {"timeToLive": "1.00:00:02.5000000", "body": "plain"}))
    assert (message.time_to_live, message.body) == (86_402_500, b"plain")


def exported(file: Path) -> object:
    return exported_keys(file, Place("w", "w", "W", "q/$DeadLetterQueue"))


@pytest.mark.parametrize(
    ("change", "use", "text"),
    [
        ({"enqueuedTimeUtc": "soon"}, read, "is a file of ServiceBusExplorer: "),
        ({"properties": {"a": [1]}}, read, "is a file of ServiceBusExplorer: "),
        ({"messageId": 7}, read, "is a file of ServiceBusExplorer: "),
        ({}, exported, "write one with busway dead export; busway try --messages reads this one"),
    ],
)
def test_what_cannot_be_read_or_sent_is_one_problem(
    tmp_path: Path, change: dict[str, Any], use: Any, text: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        use(saved(tmp_path, [SAVED | change]))
    (problem,) = raised.value.problems
    assert text in str(problem)
