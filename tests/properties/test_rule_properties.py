"""Rules read and change the properties of a message like those of a plain dict."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busway_broker.core.content import read_content
from busway_broker.core.rule_properties import RuleProperties as BrokersRuleProperties
from shared.amqp.values import Value, string
from shared.errors import MessageRejected
from shared.message.rule_properties import RuleProperties
from tests import messages, strategies

# Few letters, some beyond ASCII, so that names differ only in case.
names = st.text("aAbBéÉß", min_size=1, max_size=3)
values = strategies.of_kind("string", "long", "int", "boolean", "uuid", "timestamp")
steps = st.lists(st.tuples(st.sampled_from(("ask", "set", "remove")), names, values), max_size=8)


def spellings(named: dict[str, Value], name: str) -> list[str]:
    return [each for each in named if each.lower() == name.lower()]


@given(named=st.dictionaries(names, values, max_size=6), name=names, value=values)
def test_a_name_in_two_spellings_is_ambiguous_and_changed_in_all(named: Any, name: str, value: Any) -> None:
    present = spellings(named, name)
    for target in ("app", "broker"):
        read, changed, removed = (opened(target, named) for _ in range(3))
        if len(present) > 1:
            with pytest.raises(MessageRejected, match="two"):
                read[0].user(name.lower())
        else:
            assert read[0].user(name.lower()) == (named[present[0]] if present else None)
        changed[0].set_user(name, value)
        others = [(each, named[each]) for each in named if each not in present]
        assert [each for each in changed[1]() if each[0] not in {name, *present}] == others
        assert [each for each in changed[1]() if each not in others] == [(present[0] if present else name, value)]
        removed[0].remove_user(name)
        assert removed[1]() == others


def opened(target: str, named: dict[str, Value]) -> tuple[Any, Callable[[], list[tuple[str, Value]]]]:
    """Return the properties for rules of a message in the app or the broker, and a function that reads them."""
    if target == "app":
        message = messages.message(1, named=named)
        return RuleProperties(message), lambda: list(message.application_properties())
    content = read_content(messages.delivered(None, named=named))
    properties = BrokersRuleProperties(content, 1, 1)

    def read() -> list[tuple[str, Value]]:
        return list(messages.received(properties.content().bare).application_properties())

    return properties, read


def folded(named: dict[str, Value]) -> dict[str, tuple[str, Value]]:
    """Return name and value by lower-case name; the first of several names that differ only in case."""
    found: dict[str, tuple[str, Value]] = {}
    for name, value in named.items():
        found.setdefault(name.lower(), (name, value))
    return found


@given(named=st.dictionaries(names, values, max_size=6), walk=steps)
def test_rules_read_and_change_properties_like_a_dict(named: Any, walk: Any) -> None:
    named = {name: named[name] for name, _ in folded(named).values()}
    # A value can look like the name of a property.
    named["decoy"] = string("".join(named) + "\xa1\x01a")
    message = messages.message(1, named=named)
    properties, expected = RuleProperties(message), dict(named)
    for verb, name, value in walk:
        spelling, seen = folded(expected).get(name.lower(), (name, None))
        assert properties.user(name.lower()) == seen
        if verb == "set":
            properties.set_user(name, value)
            expected[spelling] = value
        elif verb == "remove":
            properties.remove_user(name)
            expected.pop(spelling, None)
    assert dict(message.application_properties()) == expected
