"""The delivery annotations of an event, which the live tests of azure-eventhub read back."""

from busway_broker.core.event import Event, read_event
from shared.amqp.codec import decode, encode, plain
from shared.amqp.sections import data, split
from shared.amqp.values import Value, map_, string, symbol

PREFIX = b"\x00\x53\x71"
BODY = data(b"x")


def section(**pairs: str) -> bytes:
    return PREFIX + encode(map_((symbol(name), string(value)) for name, value in pairs.items()))


def delivered(message: bytes, own: bytes = b"") -> tuple[object, bytes]:
    sections = split(Event(read_event(message), 5, 50, 1_000).encode(own))
    found: Value | None = decode(sections.delivery_annotations, 3)[0] if sections.delivery_annotations else None
    return None if found is None else plain(found), sections.body


def test_they_are_delivered_in_front_wherever_they_were() -> None:
    assert delivered(section(a="1", b="2") + BODY) == ({"a": "1", "b": "2"}, BODY)
    assert delivered(BODY + section(a="1")) == ({"a": "1"}, BODY)


def test_the_brokers_own_are_added() -> None:
    assert delivered(section(a="1") + BODY, section(last="9")) == ({"last": "9", "a": "1"}, BODY)
    assert delivered(BODY, section(last="9")) == ({"last": "9"}, BODY)


def test_without_any_there_is_no_section() -> None:
    assert delivered(BODY) == (None, BODY)
    assert delivered(section() + BODY) == (None, BODY)
