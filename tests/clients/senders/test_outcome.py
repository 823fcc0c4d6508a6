"""The outcome of a send is by position, since an id may occur twice."""

from typing import Any

import pytest

from busway_clients import Delivery, Outcome

LOST = ConnectionError()


@pytest.mark.parametrize(
    ("deliveries", "nowhere", "somewhere", "accepted_by"),
    [
        ({"west": Delivery(("a", "b"))}, (), (), ("west",)),
        ({"west": Delivery((), ("a", "b", "b"), LOST)}, ("a", "b", "b"), ("a", "b", "b"), ()),
        ({"west": Delivery(("a", "b"), ("b",), LOST)}, ("b",), ("b",), ()),
        # Active: both are sent all of them.
        ({"west": Delivery(("a",), ("b", "b"), LOST), "east": Delivery(("a", "b", "b"))}, (), ("b", "b"), ("east",)),
        (
            {"west": Delivery(("a",), ("b", "b"), LOST), "east": Delivery(("a", "b"), ("b",), LOST)},
            ("b",),
            ("b", "b"),
            (),
        ),
        # Passive: the backup is sent the rest, and neither has all.
        ({"west": Delivery(("a",), ("b", "b"), LOST), "east": Delivery(("b", "b"))}, (), ("b", "b"), ()),
        ({"west": Delivery((), ("a", "b"), LOST), "east": Delivery(("a", "b"))}, (), ("a", "b"), ("east",)),
        ({}, (), (), ()),
    ],
)
def test_an_outcome(deliveries: Any, nowhere: Any, somewhere: Any, accepted_by: Any) -> None:
    outcome = Outcome(deliveries)
    assert (outcome.accepted_nowhere, outcome.missing_somewhere) == (nowhere, somewhere)
    assert outcome.accepted_by == accepted_by
    assert {*outcome.accepted_by, *outcome.missing_in} == {*deliveries}
