"""The properties editor: names, patterns, actions, and which properties they must not change."""

from typing import Any

import pytest

from shared.amqp.codec import encode
from shared.amqp.values import Value, list_, long, string, uint
from shared.testing import edited, message


def changed(properties: Any, **options: Any) -> Any:
    return edited({"properties": options}, message(properties=properties)).message.properties


@pytest.mark.parametrize(
    ("properties", "options", "expected"),
    [
        ({"a": 1, "B": 2}, {"remove": ["A", "none"]}, {"B": 2}),
        ({"x-a": 1, "X-b": 2, "ax-": 3}, {"remove": ["x-*"]}, {"ax-": 3}),
        ({"abc": 1, "ac": 2, "abd": 3}, {"remove": ["a*b*c", "*d"]}, {"ac": 2}),
        ({"a": 1, "b": 2}, {"remove": ["*"]}, {}),
        ({"a": 1, "b": 2}, {"rename": {"A": "b", "B": "a"}}, {"b": 1, "a": 2}),
        ({"a": 1, "b": 2}, {"rename": {"a": "b"}, "remove": ["b"]}, {"b": 1}),
        ({"a": 1}, {"rename": {"a": "A"}}, {"A": 1}),
        ({"a": 1}, {"action": "SET b = a + 1; REMOVE a"}, {"b": 2}),
        ({"a": 1}, {"rename": {"a": "c"}, "action": "SET b = c"}, {"c": 1, "b": 1}),
        ({"a": 1}, {"rename": {"none": "n"}}, {"a": 1}),
        ({"a": 1, "c": 2}, {"remove": ["*"], "rename": {"A": "b"}}, {"b": 1}),
    ],
)
def test_application_properties_are_renamed_set_and_removed(properties: Any, options: Any, expected: Any) -> None:
    assert changed(properties, **options) == expected


def test_unchanged_values_keep_their_bytes_and_their_order() -> None:
    odd = Value(0x71, 5)  # an int of four bytes that one byte would hold
    received = message(properties={"a": odd, "b": uint(0), "l": list_([long(1)])})
    sent = edited({"properties": {"rename": {"a": "z"}}}, received).message
    assert [name for name, _ in sent.raw.application_properties()][:3] == ["z", "b", "l"]
    assert dict(sent.raw.application_properties())["z"] == odd


def test_broker_properties_are_set_and_removed_by_the_action() -> None:
    action = "SET sys.ContentType = 'text/plain'; SET sys.TimeToLive = '0:0:30'; REMOVE sys.Subject"
    sent = edited({"properties": {"action": action}}, message(subject="s")).message
    assert (sent.content_type, sent.subject, sent.raw.time_to_live) == ("text/plain", None, 30_000)


@pytest.mark.parametrize("other", ["B", "A"])
def test_a_rename_to_an_existing_property_rejects_the_message(other: str) -> None:
    received = message(properties={"a": 1})
    received.append_properties(encode(string(other)) + encode(long(2)), 1)
    (reason,) = edited({"properties": {"rename": {"a": "b"}}}, received).reasons
    assert reason == "PropertyExists: properties: has a property b already, expected the name to be free"


def test_patterns_do_not_remove_busways_own_properties() -> None:
    received = message(properties={"repl-path": "north", "a": 1})
    sent = edited({"properties": {"remove": ["*"]}}, received).message
    assert dict(sent.raw.application_properties())["repl-path"].payload == "north;here"


def test_an_action_that_fails_rejects_the_message() -> None:
    (reason,) = edited({"properties": {"action": "SET a = 1 / b"}}, message(properties={"b": 0})).reasons
    assert ": properties: " in reason


def test_a_pattern_with_many_stars_is_matched_quickly() -> None:
    pattern = "a*" * 30 + "b"
    assert list(changed({"a" * 5000: 1}, remove=[pattern])) == ["a" * 5000]
