"""Rules read and change the properties of a message like those of a plain dict."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shared.amqp.values import Value, string
from shared.message.rule_properties import RuleProperties
from tests import messages, strategies

# Few letters, some beyond ASCII, so that names differ only in case.
names = st.text("aAbBéÉß", min_size=1, max_size=3)
values = strategies.of_kind("string", "long", "int", "boolean", "uuid", "timestamp")
steps = st.lists(st.tuples(st.sampled_from(("ask", "set", "remove")), names, values), max_size=8)


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
