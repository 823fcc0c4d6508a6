"""What rules see and change of a message is what a plain dict of its properties would show."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from shared.amqp.values import Value, string
from shared.message.rule_properties import RuleProperties
from tests import messages, strategies

# Few letters, so that names meet in other cases, some of them beyond ASCII.
names = st.text("aAbBéÉß", min_size=1, max_size=3)
values = strategies.of_kind("string", "long", "int", "boolean", "uuid", "timestamp")
steps = st.lists(st.tuples(st.sampled_from(("ask", "set", "remove")), names, values), max_size=8)


def folded(named: dict[str, Value]) -> dict[str, tuple[str, Value]]:
    """Return name and value by name in lower case; of several names that differ in case only, the first."""
    found: dict[str, tuple[str, Value]] = {}
    for name, value in named.items():
        found.setdefault(name.lower(), (name, value))
    return found


@given(named=st.dictionaries(names, values, max_size=6), walk=steps)
def test_rules_see_and_change_what_is_there(named: Any, walk: Any) -> None:
    named = {name: named[name] for name, _ in folded(named).values()}
    # Text in a value that looks like a property's name is none.
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
