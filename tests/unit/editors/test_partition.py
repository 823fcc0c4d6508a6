"""The partition editor: which messages get a key, and which tasks may set one."""

from typing import Any

import pytest
from pydantic import ValidationError

from shared.amqp.values import NULL, double, string
from shared.message.message import Message
from shared.tasks.models import TaskFile
from shared.testing import edited, message


def key_of(received: Message, **options: Any) -> Any:
    return edited({"partition": options}, received).message.partition_key


@pytest.mark.parametrize(
    ("body", "expected"), [(b'{"v": "c-1"}', "c-1"), (b'{"v": 47}', "47"), (b'{"v": "' + b"x" * 128 + b'"}', "x" * 128)]
)
def test_a_value_of_the_body_becomes_the_key(body: bytes, expected: str) -> None:
    assert key_of(message(body), value="v") == expected


def test_a_property_becomes_the_key() -> None:
    assert key_of(message(properties={"Account": "a"}), property="account") == "a"
    assert key_of(message(properties={"account": 5}), property="Account") == "5"


def test_a_message_with_an_ordering_key_keeps_it() -> None:
    assert key_of(message(b"no JSON", partition_key="own"), value="v") == "own"
    assert key_of(message(b"no JSON", session_id="own"), value="v") is None
    assert key_of(message(b"no JSON", properties={"repl-eh-partition-key": "own"}), value="v") is None


def test_an_empty_session_id_or_partition_key_is_replaced() -> None:
    assert key_of(message({"v": "c"}, session_id="", partition_key=""), value="v") == "c"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b'{"v": 1.5}', "the value for the key is neither a text nor a whole number"),
        (b'{"v": true}', "the value for the key is neither"),
        (b'{"v": ["a"]}', "the value for the key is neither"),
        (b'{"v": ""}', "the value for the key has 0 characters, expected 1 to 128"),
        (b'{"v": "' + b"x" * 129 + b'"}', "the value for the key has 129 characters"),
        (b'{"v": "\\ud83d"}', "expected 1 to 128 of UTF-8"),
        (b'{"v": null}', "there is no value for the key"),
        (b"5", "there is no value for the key"),
        (b"{", "body is not JSON"),
    ],
)
def test_a_value_that_cannot_be_a_key_rejects_the_message(body: bytes, problem: str) -> None:
    (reason,) = edited({"partition": {"value": "v"}}, message(body)).reasons
    assert ": partition: " in reason
    assert problem in reason


def test_a_message_without_the_value_passes_if_the_options_allow_it() -> None:
    assert key_of(message(b"{}"), value="v", missing="leave") is None
    assert key_of(message(properties={"p": NULL}), property="p", missing="leave") is None
    received = message(properties={"p": double(1.5)})
    assert edited({"partition": {"property": "p", "missing": "leave"}}, received).reasons


@pytest.mark.parametrize(
    ("source", "target", "problem"),
    [
        ({"sessions": True}, {}, "sets a partition key on messages with a session"),
        ({}, {"partition": 3}, "sets a partition key, but a route has a partition"),
        ({}, {}, None),
    ],
)
def test_a_task_that_cannot_use_a_partition_key_is_reported(source: Any, target: Any, problem: str | None) -> None:
    document = {
        "task": "t",
        "source": {"connection": "west", "queue": "a", **source},
        "editors": [{"partition": {"value": "id"}}],
        "routes": [{"target": {"connection": "hub", "hub": "b", **target}}],
    }
    if problem is None:
        assert TaskFile.model_validate(document).editors
        return
    with pytest.raises(ValidationError) as caught:
        TaskFile.model_validate(document)
    assert problem in str(caught.value)


def test_other_annotations_are_not_changed() -> None:
    received = message({"v": "c"})
    received.set_annotations({"mine": string("x")})
    assert edited({"partition": {"value": "v"}}, received).message.raw.annotation("mine") == string("x")
