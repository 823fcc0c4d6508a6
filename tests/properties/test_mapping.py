"""Messages from Service Bus to Event Hubs and back, with what the local broker accepts and delivers."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from busway_broker.core.content import read_content
from busway_broker.core.event import Event, read_event
from shared.amqp.codec import encode
from shared.amqp.scan import join_list, join_map
from shared.amqp.sections import Sections, data
from shared.amqp.values import NULL, Value, string, symbol
from shared.codecs.envelope import Form
from shared.ends.registry import kind
from shared.message.mapping import restore_event
from shared.message.message import Message
from tests.mapping_table import ORIGIN, parts
from tests.messages import properties
from tests.strategies import assigned_primitives, of_kind, values

BINARIES = (0xA0, 0xB0)
COMPOUNDS = (0x45, 0xC0, 0xC1, 0xD0, 0xD1, 0xE0, 0xF0)

identifiers = st.none() | st.sampled_from(["a", "b", "", "ä" * 128]) | st.text(min_size=1, max_size=20)
names = st.text(min_size=1, max_size=20).filter(lambda name: not name.startswith("repl-"))
service_bus_values = assigned_primitives.filter(lambda value: value.code not in (*BINARIES, *COMPOUNDS))
event_values = assigned_primitives | values.filter(lambda value: value.code in COMPOUNDS)
header_fields = st.tuples(
    st.just(NULL) | of_kind("boolean"), st.just(NULL) | of_kind("ubyte"), st.just(NULL) | of_kind("uint")
)


def _map(prefix: bytes, pairs: list[tuple[Value, Value]]) -> bytes:
    encoded = [encode(key) + encode(value) for key, value in pairs]
    return join_map(prefix, encoded, len(encoded)) if encoded else b""


@st.composite
def messages(draw: st.DrawFn, contents: st.SearchStrategy[Value], *, has_header: bool, keys_agree: bool) -> bytes:
    session_id, key = draw(identifiers), draw(identifiers)
    if keys_agree and session_id is not None and key is not None:
        key = session_id
    named = draw(st.dictionaries(names, contents, max_size=5))
    fields = {} if session_id is None else {"session_id": string(session_id)}
    header = [encode(value) for value in draw(header_fields)] if has_header else []
    return Sections(
        header=join_list(b"\x00\x53\x70", header) if header else b"",
        message_annotations=_map(
            b"\x00\x53\x72", [] if key is None else [(symbol("x-opt-partition-key"), string(key))]
        ),
        properties=properties(message_id=string("id"), **fields),
        application_properties=_map(b"\x00\x53\x74", [(string(name), value) for name, value in named.items()]),
        body=data(draw(st.binary(max_size=10))),
    ).encode()


def in_a_hub(message: Message) -> bytes:
    """Return the event that a hub delivers for an event that was sent to it."""
    return Event(read_event(message.encode(), message.partition_key), 1, 1, 1).encode()


def in_a_queue(message: Message) -> bytes:
    """Return the message that a queue accepts; a refusal is an error."""
    content = message.encode()
    read_content(content)
    return content


def carried(content: bytes, source: Form, target: Form) -> Message:
    message = Message.received(content, ORIGIN)
    if source == "event-hubs":
        restore_event(message)
    fit = kind(target).fit(source)
    if fit is not None:
        fit(message)
    return message


def said(message: Message) -> tuple[dict[str, object], bytes]:
    """Return all parts of a message; binaries without the width of their encoding, which is not preserved."""
    found: dict[str, object] = {
        name: value.payload if value.code in BINARIES else encode(value) for name, value in parts(message).items()
    }
    return found, message.sections.body


@given(messages(service_bus_values, has_header=True, keys_agree=True), st.integers(1, 3))
def test_message_round_trips_through_a_hub(content: Any, hubs: Any) -> None:
    event = in_a_hub(carried(content, "service-bus", "event-hubs"))
    for _ in range(hubs - 1):
        event = in_a_hub(carried(event, "event-hubs", "event-hubs"))
    back = carried(event, "event-hubs", "service-bus")
    assert said(back) == said(Message.received(content, ORIGIN))
    in_a_queue(back)


@given(messages(event_values, has_header=False, keys_agree=False), st.integers(1, 3))
def test_event_round_trips_through_service_bus(content: Any, queues: Any) -> None:
    message = in_a_queue(carried(content, "event-hubs", "service-bus"))
    for _ in range(queues - 1):
        message = in_a_queue(carried(message, "service-bus", "service-bus"))
    back = carried(message, "service-bus", "event-hubs")
    assert said(back) == said(Message.received(content, ORIGIN))


@given(messages(event_values, has_header=False, keys_agree=False))
def test_events_of_one_key_and_group_are_messages_of_one_session(content: Any) -> None:
    event = Message.received(content, ORIGIN)
    message = carried(content, "event-hubs", "service-bus")
    assert (message.session_id or "") == (event.session_id or event.partition_key or "")


@given(messages(service_bus_values, has_header=True, keys_agree=True))
def test_messages_of_one_session_are_events_of_one_key(content: Any) -> None:
    message = Message.received(content, ORIGIN)
    event = carried(content, "service-bus", "event-hubs")
    assert (event.partition_key or "") == (message.session_id or message.partition_key or "")
