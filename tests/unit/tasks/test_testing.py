"""The kit with which users test editors and tasks."""

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from pydantic import ValidationError

from shared.errors import ConfigError
from shared.testing import Outcome, carried, edited, message


def test_a_step_in_three_lines() -> None:
    result = edited({"reduce": {"keep": ["id"]}}, message({"id": 1, "note": "x"}))
    assert result.message.json == {"id": 1}


def test_message_factory_uses_its_arguments() -> None:
    made = message({"a": 1}, properties={"p": 1}, message_id="i", session_id="s", partition_key="s", subject="t")
    sent = edited([], made).message
    assert (sent.message_id, sent.session_id, sent.partition_key, sent.subject) == ("i", "s", "s", "t")
    assert (sent.properties, sent.content_type, sent.target) == ({"p": 1}, "application/json", "there/target")
    assert edited([], message("text")).message.text == "text"
    assert edited([], message(b"\xff")).message.body == b"\xff"
    assert edited([], message([1], content_type="x/y")).message.content_type == "x/y"


def test_messages_are_not_changed() -> None:
    made = message({"a": 1})
    before = made.encode()
    edited({"transform": {"expression": "a"}}, made)
    assert made.encode() == before


def test_several_steps_and_messages_with_their_outcomes() -> None:
    steps: list[dict[str, Any]] = [{"filter": "n > 1"}, {"transform": {"expression": "a"}}]
    bodies = [({"a": 1}, 1), ({"a": 2}, 2), ({}, 3)]
    result = edited(steps, *(message(body, properties={"n": n}) for body, n in bodies))
    assert result.outcomes == [Outcome.FILTERED, Outcome.SENT, Outcome.REJECTED]
    assert result.message.text == "2"
    assert result.reasons == ["withheld by an editor", "NothingFound: transform: the result is null, expected a value"]


def test_a_batch_is_given_as_a_whole() -> None:
    result = edited({"batch": {}}, message({"a": 1}), message({"a": 2}, message_id="m-2"))
    assert result.message.json == [{"a": 1}, {"a": 2}]
    assert result.outcomes == [Outcome.SENT, Outcome.SENT]


def test_single_message_must_be_one() -> None:
    with pytest.raises(AssertionError, match=r"0 messages were sent, expected one: .*withheld by an editor"):
        _ = edited({"filter": "1 = 2"}, message()).message


def test_invalid_steps_are_reported() -> None:
    with pytest.raises(ValidationError, match="unknown editor 'redude', did you mean 'reduce'"):
        edited({"redude": {}}, message())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "connections.yaml").write_text(
        "west: {kind: service-bus, setting: WEST}\nhub: {kind: event-hubs, setting: HUB}\n"
    )
    (tmp_path / "tasks/orders.yaml").write_text(
        dedent("""
        task: orders
        source: {connection: hub, hub: orders, consumer_group: busway}
        editors: [{route: {country: {value: country}}}]
        routes:
          - {when: "country = 'DE'", target: {connection: west, queue: german}}
          - {when: "country = 'FR'", target: {connection: west, queue: french}}
        rejects: {connection: west, queue: rejected}
        """)
    )
    return tmp_path


def test_a_task_of_a_folder(folder: Path) -> None:
    bodies = [{"country": "FR"}, {"country": "DE"}, {"country": "US"}, {}]
    result = carried(folder, "orders", *map(message, bodies), partition="0")
    assert [each.target for each in result.messages] == ["west/french", "west/german"]
    assert [each.json for each in result.messages] == bodies[:2]
    assert result.outcomes == [Outcome.SENT, Outcome.SENT, Outcome.FILTERED, Outcome.REJECTED]


def test_missing_folder_or_task_is_reported(folder: Path) -> None:
    with pytest.raises(ConfigError):
        carried(folder / "nowhere", "orders", message())
    with pytest.raises(ValueError, match="unknown task 'other', expected one of orders"):
        carried(folder, "other", message())
