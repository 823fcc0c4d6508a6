from copy import replace
from typing import Any

import pytest

from shared.amqp.sections import split
from shared.amqp.values import NULL, Malformed, Value, char, int_, string
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.message.metadata import Departure, deterministic_id, iso_time, stamp, unstamp, visited_sites
from tests import messages
from tests.messages import ENQUEUED, delivered

ENQUEUED_TEXT = "2030-03-17T17:46:40.123Z"


def stamped(number: int | None = 1, *, origin: Origin | None = None, **options: Any) -> dict[str, object]:
    message = messages.message(number, **options, origin=origin or Origin("west", "orders"))
    stamp(message)
    again = Message.received(message.encode(), Origin("east", "orders"))
    return {name: value.payload for name, value in again.application_properties()}


def test_first_hop_sets_all_stamps() -> None:
    assert stamped(42) == {"repl-path": "west", "repl-enqueue-time": ENQUEUED_TEXT, "repl-sequence": "42"}


def test_second_hop_is_appended_to_the_stamps_of_the_first() -> None:
    named = {
        "repl-path": string("north"),
        "colour": string("red"),
        "repl-enqueue-time": string("2020-01-01T00:00:00.000Z"),
        "repl-sequence": string("7"),
    }
    assert stamped(42, named=named) == {
        "colour": "red",
        "repl-path": "north;west",
        "repl-enqueue-time": "2020-01-01T00:00:00.000Z;" + ENQUEUED_TEXT,
        "repl-sequence": "7;42",
    }


def carried(*sites: str) -> Message:
    """Return a message that has left *sites*, each with the next number."""
    content = messages.message(6, named={"colour": string("red")}).encode()
    for number, site in enumerate(sites, 7):
        arrived = replace(messages.message(number).arrival, origin=Origin(site, "orders"))
        message = Message(split(content), arrived)
        stamp(message)
        content = message.encode()
    return Message(split(content), messages.message(1).arrival)


@pytest.mark.parametrize(
    ("sites", "site", "number", "left", "found"),
    [
        (("west",), "west", None, (), Departure(7, ENQUEUED)),
        (("west", "north"), "west", None, (), Departure(7, ENQUEUED)),
        (("north", "west"), "west", None, ("north",), Departure(8, ENQUEUED)),
        (("west", "north", "west"), "west", 7, (), Departure(7, ENQUEUED)),
        (("west", "north", "west"), "west", 9, ("west", "north"), Departure(9, ENQUEUED)),
        (("west",), "west", 8, ("west",), Departure(None, None)),
        (("north",), "west", None, ("north",), Departure(None, None)),
        ((), "west", None, (), Departure(None, None)),
    ],
)
def test_what_a_message_was_stamped_with_since_it_left_a_site_is_removed(
    sites: tuple[str, ...], site: str, number: int | None, left: tuple[str, ...], found: Departure
) -> None:
    message = carried(*sites)
    assert unstamp(message, site, number) == found
    assert dict(message.application_properties()) == dict(carried(*left).application_properties())


@pytest.mark.parametrize(
    ("numbers", "times"), [("x", ENQUEUED_TEXT), ("9" * 30, ENQUEUED_TEXT), ("1;2", ENQUEUED_TEXT), ("7", "noon")]
)
def test_stamps_that_say_nothing_are_removed_all_the_same(numbers: str, times: str) -> None:
    named = {"repl-path": string("west"), "repl-sequence": string(numbers), "repl-enqueue-time": string(times)}
    message = messages.message(1, named=named)
    assert None in unstamp(message, "west")
    assert list(message.application_properties()) == []


def test_stamps_that_are_not_text_stay() -> None:
    message = messages.message(1, named={"repl-path": int_(5)})
    assert unstamp(message, "west") == Departure(None, None)
    assert len(list(message.application_properties())) == 1


def test_the_property_name_of_the_reference_sample_is_read_and_not_written() -> None:
    named = {"repl-enqueued-time": string("2020-01-01 00:00:00Z"), "repl-sequence": string("7")}
    assert stamped(42, named=named) == {
        "repl-path": "west",
        "repl-enqueue-time": "2020-01-01 00:00:00Z;" + ENQUEUED_TEXT,
        "repl-sequence": "7;42",
    }


def test_an_offset_is_stamped_if_the_source_has_one() -> None:
    assert stamped(1, annotated={"x-opt-offset": string("4711")})["repl-offset"] == "4711"
    named = {"repl-path": string("a"), "repl-offset": string("9")}
    assert stamped(1, annotated={"x-opt-offset": string("4711")}, named=named)["repl-offset"] == "9;4711"


def test_a_message_that_was_never_enqueued_has_only_a_path() -> None:
    assert stamped(None) == {"repl-path": "west"}


def test_the_dead_letter_reason_moves_to_a_stamp() -> None:
    named = {"DeadLetterReason": string("Poison"), "DeadLetterErrorDescription": string("it is")}
    origin = Origin("west", "jobs/$DeadLetterQueue")
    first = stamped(1, named=named, origin=origin)
    assert first == {
        "repl-path": "west",
        "repl-enqueue-time": ENQUEUED_TEXT,
        "repl-sequence": "1",
        "repl-dlq-reason": "Poison",
        "repl-dlq-description": "it is",
        "repl-dlq-source": "jobs",
    }
    again = {name: string(str(value)) for name, value in first.items()} | {"DeadLetterReason": string("Again")}
    second = stamped(2, named=again, origin=origin._replace(site="east"))
    assert second["repl-dlq-reason"] == "Poison;Again"
    assert second["repl-dlq-source"] == "jobs;jobs"
    assert "DeadLetterReason" not in second


@pytest.mark.parametrize(
    ("entity", "annotated", "source"),
    [
        ("orders", {"x-opt-deadletter-source": string("jobs")}, "jobs"),
        ("orders/$Transfer/$DeadLetterQueue", {}, "orders"),
        ("orders/Subscriptions/billing/$deadletterqueue", {}, "orders/Subscriptions/billing"),
    ],
)
def test_a_dead_letter_without_a_reason_is_stamped_with_what_gave_it_up(
    entity: str, annotated: Any, source: str
) -> None:
    properties = stamped(1, origin=Origin("west", entity), annotated=annotated)
    assert (properties["repl-dlq-source"], properties.get("repl-dlq-reason")) == (source, None)


def test_a_null_dead_letter_reason_is_accepted_and_not_stamped() -> None:
    properties = stamped(1, named={"DeadLetterReason": NULL, "DeadLetterErrorDescription": NULL})
    assert set(properties) == {"repl-path", "repl-enqueue-time", "repl-sequence"}


def test_a_dead_letter_reason_that_is_not_text_is_not_changed() -> None:
    assert stamped(1, named={"DeadLetterReason": int_(5)})["DeadLetterReason"] == 5


@pytest.mark.parametrize("name", ["repl-path", "repl-enqueue-time", "repl-enqueued-time", "repl-sequence"])
@pytest.mark.parametrize("value", [int_(5), char("\ud800")])
def test_a_stamp_of_another_type_is_malformed(name: str, value: Value) -> None:
    with pytest.raises(Malformed, match=name):
        stamped(1, named={name: value})


@pytest.mark.parametrize("nothing", [NULL, string("")])
def test_an_empty_stamp_is_replaced(nothing: Value) -> None:
    assert stamped(1, named={"repl-path": nothing, "repl-sequence": nothing})["repl-path"] == "west"


@pytest.mark.parametrize(
    ("path", "sites"), [(None, []), (NULL, []), (string(""), []), (string("a"), ["a"]), (string("a;b"), ["a", "b"])]
)
def test_visited_sites_are_read_from_the_path(path: Value | None, sites: list[str]) -> None:
    content = delivered(1, named={} if path is None else {"repl-path": path})
    assert visited_sites(Message.received(content, Origin("west", "q"))) == sites


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (ENQUEUED, ENQUEUED_TEXT),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
    ],
)
def test_times_are_written_with_milliseconds(milliseconds: int, text: str) -> None:
    assert iso_time(milliseconds) == text


@pytest.mark.parametrize("milliseconds", [253_402_300_800_000, -(2**63), 2**63 - 1])
def test_a_time_beyond_the_calendar_is_malformed(milliseconds: int) -> None:
    with pytest.raises(Malformed, match="enqueued time"):
        iso_time(milliseconds)


def test_each_message_has_a_different_deterministic_id() -> None:
    arrival = Arrival(Origin("west", "orders", "0"), 1, None, 5, None, None)
    others = [
        replace(arrival, origin=Origin("east", "orders", "0")),
        replace(arrival, origin=Origin("west", "bills", "0")),
        replace(arrival, origin=Origin("west", "orders", "1")),
        replace(arrival, origin=Origin("west", "orders")),
        replace(arrival, sequence_number=2),
        replace(arrival, enqueued_time=6),
    ]
    assert len({deterministic_id(arrival) for arrival in (arrival, *others)}) == 1 + len(others)
    assert deterministic_id(replace(arrival, locked_until=9)) == deterministic_id(arrival)
    assert deterministic_id(replace(arrival, sequence_number=None)) is None
