"""
What a message becomes where it passes between Service Bus and Event Hubs and back, measured by sending it.

`python -m tests.mapping_table` prints the tables of docs/mapping.md; tests/contracts/test_mapping_table.py compares.
"""

from collections.abc import Iterator

from shared.amqp import map_section, sections
from shared.amqp.codec import decode, decode_all, encode
from shared.amqp.scan import join_list, list_fields
from shared.amqp.sections import Sections
from shared.amqp.values import TRUE, Value, binary, int_, list_, string, symbol, timestamp, ubyte, uint
from shared.codecs.envelope import Form
from shared.ends.registry import kind
from shared.message.arrival import Origin
from shared.message.mapping import restore_event
from shared.message.message import Message
from tests.messages import annotations, application_properties, properties

ORIGIN = Origin("west", "orders")
MOMENT = timestamp(1_900_000_000_000)

_HEADER_NAMES = ("durable", "priority", "time to live")
_PROPERTY_NAMES = (
    *("message id", "user id", "to", "subject", "reply to", "correlation id", "content type", "content encoding"),
    *("absolute expiry time", "creation time", "session id", "group sequence", "reply-to session id"),
)
_ANNOTATION_NAMES = {"x-opt-partition-key": "partition key", "x-opt-scheduled-enqueue-time": "scheduled enqueue time"}
_KEY = {"x-opt-partition-key": string("k")}
_OTHERS = properties(
    message_id=string("m"),
    user_id=binary(b"u"),
    to=string("t"),
    subject=string("s"),
    reply_to=string("r"),
    correlation_id=string("c"),
    content_type=symbol("text/plain"),
    content_encoding=symbol("gzip"),
    creation_time=MOMENT,
    group_sequence=uint(7),
    reply_to_session_id=string("r"),
)


def _header(index: int, value: Value) -> bytes:
    return join_list(b"\x00\x53\x70", [b"\x40"] * index + [encode(value)])


FROM_SERVICE_BUS = (
    Sections(properties=properties(session_id=string("s"))),
    Sections(
        properties=properties(session_id=string("s")),
        message_annotations=annotations({"x-opt-partition-key": string("s")}),
    ),
    Sections(message_annotations=annotations(_KEY)),
    Sections(),
    Sections(header=_header(2, uint(90_500))),
    Sections(header=_header(0, TRUE)),
    Sections(header=_header(1, ubyte(7))),
    Sections(properties=_OTHERS),
    Sections(message_annotations=annotations({"mine": int_(1)})),
    Sections(application_properties=application_properties({"n": int_(1)})),
)
FROM_EVENT_HUBS = (
    Sections(message_annotations=annotations(_KEY)),
    Sections(message_annotations=annotations(_KEY), properties=properties(session_id=string("k"))),
    Sections(message_annotations=annotations(_KEY), properties=properties(session_id=string("g"))),
    Sections(properties=properties(session_id=string("g"))),
    Sections(),
    Sections(message_annotations=annotations({"iothub-connection-device-id": string("d")})),
    Sections(message_annotations=annotations({"x-opt-kafka-key": binary(b"k")})),
    Sections(properties=_OTHERS),
    Sections(application_properties=application_properties({"n": int_(1)})),
    Sections(application_properties=application_properties({"p": binary(b"\x00\xff")})),
    Sections(application_properties=application_properties({"p": list_([int_(1)])})),
)


def passed(message: Message, source: Form, target: Form) -> Message:
    """Return *message* as a task from *source* sends it to *target*, without the stamps."""
    carried = Message.received(message.encode(), ORIGIN)
    if source == "event-hubs":
        restore_event(carried)
    fit = kind(target).fit(source)
    if fit is not None:
        fit(carried)
    return carried


def parts(message: Message) -> dict[str, Value]:
    """Return everything that a message says but its body, by the name of its place."""
    return dict(_parts(message.sections))


def _parts(raw: Sections) -> Iterator[tuple[str, Value]]:
    for section, names in ((raw.header, _HEADER_NAMES), (raw.properties, _PROPERTY_NAMES)):
        fields = list_fields(section, sections.descriptor(section, 0)[1], len(section)) if section else []
        for name, field in zip(names, fields, strict=False):
            if field != b"\x40":
                yield name, decode(field)[0]
    for key, _, start, stop in map_section.entries(raw.message_annotations):
        yield _ANNOTATION_NAMES.get(str(key), f"annotation `{key}`"), decode_all(raw.message_annotations[start:stop])
    for key, _, start, stop in map_section.entries(raw.application_properties):
        yield f"property `{key}`", decode_all(raw.application_properties[start:stop])


def table(source: Form) -> str:
    """Return the table of the way from *source* to the other kind and back: of what changes."""
    words = {"service-bus": "Service Bus", "event-hubs": "Event Hubs"}
    target: Form = "event-hubs" if source == "service-bus" else "service-bus"
    lines = [f"| in {words[source]} | in {words[target]} | back in {words[source]} |", "|---|---|---|"]
    for raw in FROM_SERVICE_BUS if source == "service-bus" else FROM_EVENT_HUBS:
        there = Message(raw, Message.received(b"\x00\x53\x75\xa0\x00", ORIGIN).arrival)
        other = passed(there, source, target)
        back = passed(other, target, source)
        returned = "" if parts(back) == parts(there) else _describe(back)
        if not returned and parts(other) == parts(there):
            continue
        changed = "the same" if parts(other) == parts(there) else _describe(other)
        lines.append(f"| {_describe(there)} | {changed} | {returned} |")
    return "\n".join(lines)


def _describe(message: Message) -> str:
    found = parts(message)
    if len(found) > 5:
        return ", ".join(found)
    return ", ".join(f"{name} {_shown(value)}" for name, value in found.items()) or "no session, no key"


def _shown(value: Value) -> str:
    if isinstance(value.payload, bytes):
        return f"{value.kind} `{value.payload.hex()}`"
    if value.kind in ("string", "symbol"):
        return f"`{value.payload}`"
    if value.kind in ("null", "boolean"):
        return str(value.payload).lower().replace("none", "null")
    return f"{value.kind} `{value.payload}`" if isinstance(value.payload, int) else f"({value.kind})"


if __name__ == "__main__":
    print(f"{table('service-bus')}\n\n{table('event-hubs')}")  # noqa: T201 - this is what the module is run for
