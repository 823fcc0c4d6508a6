"""Every valid message: parts that Busway does not change are sent with the bytes that were received."""

import asyncio
from dataclasses import replace
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from shared.amqp.codec import decode_all, encode
from shared.amqp.scan import list_fields, map_entries
from shared.amqp.sections import Sections, descriptor, split
from shared.amqp.values import NULL, Malformed, Value, string
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.message.arrival import Origin
from shared.message.loop_prevention import LoopGuard
from shared.message.message import SERVICE_ASSIGNED, Message
from shared.message.metadata import stamp, visited_sites
from shared.message.ttl import Remaining
from shared.protocols import Outcome
from shared.rules import parse_action, parse_filter
from tests import strategies
from tests.fakes import JournalInMemory, OutputThatAccepts, clock_at_delivery, sleep_by
from tests.messages import annotations, delivered

ORIGIN = Origin("west", "orders")
names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
settable = strategies.of_kind("string", "long", "boolean", "uuid", "timestamp")

# The annotations that a service assigns, with their types.
service_annotations = st.fixed_dictionaries(
    {},
    optional={
        "x-opt-sequence-number": strategies.of_kind("long"),
        "x-opt-enqueued-time": strategies.of_kind("timestamp"),
        "x-opt-locked-until": strategies.of_kind("timestamp"),
        "x-opt-offset": strategies.of_kind("string"),
        "x-opt-message-state": strategies.of_kind("int"),
        "x-opt-partition-key": strategies.of_kind("string"),
        "x-opt-mine": strategies.values,
    },
)
messages = st.builds(
    lambda sections, assigned: replace(sections, message_annotations=annotations(assigned)),
    strategies.messages,
    service_annotations,
)


def fields(section: bytes) -> list[bytes]:
    return list_fields(section, descriptor(section, 0)[1], len(section)) if section else []


def pairs(section: bytes) -> list[tuple[str | None, bytes, bytes]]:
    """Return each entry of a map: key as text, bytes of the key, bytes of the value."""
    entries = map_entries(section, descriptor(section, 0)[1], len(section)) if section else []
    return [(key, section[start:middle], section[middle:stop]) for key, start, middle, stop in entries]


def without_nulls_at_the_end(values: list[bytes]) -> list[bytes]:
    while values and values[-1] == b"\x40":
        values = values[:-1]
    return values


def stamped(message: Message) -> Message | None:
    """Return *message* with stamps, None if its enqueued time is invalid or an existing stamp is not text."""
    try:
        stamp(message)
    except Malformed:
        return None
    return message


NO_LIFE = {b"\x43", b"\x52\x00", bytes.fromhex("7000000000"), bytes.fromhex("70ffffffff")}
"""What says none, or forever unless the message has the times of a longer life."""


@given(messages)
def test_message_is_sent_unchanged_except_for_delivery_fields(sections: Any) -> None:
    sent = split(Message.received(sections.encode(), ORIGIN).encode())
    assert sent.delivery_annotations == b""
    header, lives_longer = fields(sections.header)[:3], False
    if len(header) > 2 and header[2] in NO_LIFE:
        lives_longer = Message.received(sections.encode(), ORIGIN).time_to_live is not None
        header[2] = header[2] if lives_longer else b"\x40"
    assert without_nulls_at_the_end(fields(sent.header)) == without_nulls_at_the_end(header)
    kept = [pair for pair in pairs(sections.message_annotations) if pair[0] not in SERVICE_ASSIGNED]
    assert pairs(sent.message_annotations) == kept
    before = fields(sections.properties)
    if len(before) > 8 and before[8] != b"\x40" and not lives_longer:
        before[8] = b"\x40"
        assert fields(sent.properties) == without_nulls_at_the_end(before)
    else:
        assert sent.properties == sections.properties
    assert sent.application_properties == sections.application_properties
    assert sent.body == sections.body
    assert sent.footer == sections.footer


@given(strategies.messages)
def test_any_valid_message_can_be_received_or_is_malformed(sections: Any) -> None:
    try:
        message = Message.received(sections.encode(), ORIGIN)
    except Malformed:
        return
    assert Message.received(message.encode(), ORIGIN).encode() == message.encode()


@given(messages, st.dictionaries(names, st.none() | settable, max_size=4))
def test_setting_properties_touches_only_their_entries(sections: Any, changes: Any) -> None:
    message = Message.received(sections.encode(), ORIGIN)
    before = pairs(sections.application_properties)
    # Existing and new names.
    changes |= dict.fromkeys([key for key, _, _ in before[:2] if key is not None], string("changed"))
    message.set_properties(changes)
    after = pairs(message.sections.application_properties)
    assert [pair for pair in after if pair[0] not in changes] == [pair for pair in before if pair[0] not in changes]
    assert {key: decode_all(value) for key, _, value in after if key in changes} == {
        name: decode_all(encode(value)) for name, value in changes.items() if value is not None
    }
    sent = split(message.encode())
    assert sent.body == sections.body
    assert sent.footer == sections.footer


@given(messages)
def test_a_stamp_adds_its_properties_and_touches_no_other(sections: Any) -> None:
    message = Message.received(sections.encode(), ORIGIN)
    before = pairs(sections.application_properties)
    assume(not any((key or "").startswith(("repl-", "DeadLetter")) for key, _, _ in before))
    if stamped(message) is None:
        return
    after = pairs(message.sections.application_properties)
    assert after[: len(before)] == before
    added = {"repl-path", "repl-enqueue-time", "repl-sequence", "repl-offset"}
    assert {key for key, _, _ in after[len(before) :]} <= added
    assert visited_sites(message) == ["west"]


@given(messages, st.integers(1, 5))
def test_hops_keep_the_bytes_of_all_other_properties(sections: Any, hops: Any) -> None:
    content = sections.encode()
    before = pairs(sections.application_properties)
    assume(not any((key or "").startswith(("repl-", "DeadLetter")) for key, _, _ in before))
    sites = [f"site-{hop}" for hop in range(hops)]
    for hop, site in enumerate(sites):
        # The message that was sent arrives with the annotations of a new delivery.
        raw = split(content)
        assigned = {"x-opt-sequence-number": Value(0x81, hop), "x-opt-enqueued-time": Value(0x83, hop * 1000)}
        raw.message_annotations = annotations(assigned)
        message = Message.received(raw.encode(), Origin(site, "orders"))
        stamp(message)
        content = message.encode()
    sent = split(content)
    assert [pair for pair in pairs(sent.application_properties) if not (pair[0] or "").startswith("repl-")] == before
    texts = {key: decode_all(value).payload for key, _, value in pairs(sent.application_properties)}
    assert texts["repl-path"] == ";".join(sites)
    assert texts["repl-sequence"] == ";".join(str(hop) for hop in range(hops))
    assert str(texts["repl-enqueue-time"]).count(";") == hops - 1
    assert sent.body == sections.body


@given(messages, st.none() | st.integers(1, 2**32 - 2))
def test_a_time_to_live_touches_only_its_field(sections: Any, milliseconds: Any) -> None:
    message = Message.received(sections.encode(), ORIGIN)
    message.time_to_live = milliseconds
    sent = Message.received(message.encode(), ORIGIN)
    assert sent.time_to_live == milliseconds
    before = (fields(sections.header) + [encode(NULL)] * 3)[:2]
    assert (fields(sent.sections.header) + [encode(NULL)] * 3)[:2] == before


# The whole line: with any input, no message is lost and none is sent twice.

ROUTES = (
    ("colour = 'red' OR sys.TimeToLive IS NULL", "SET colour = 'blue'; SET sys.Label = sys.MessageId; REMOVE old"),
    ("EXISTS(number) AND number > 5", None),
    (None, "SET sys.ContentType = colour; SET sys.TimeToLive = '0:2:0'"),
)


def line(output: OutputThatAccepts, rejects: OutputThatAccepts) -> tuple[Pipeline, JournalInMemory]:
    journal, clock = JournalInMemory(), clock_at_delivery()
    routes = [
        Route(
            Target(output, "east", "orders"),
            None if when is None else parse_filter(when),
            None if action is None else parse_action(action),
        )
        for when, action in ROUTES
    ]
    rejected = Target(rejects, "west", "rejected")
    task = Task("copy", ORIGIN, [], Router(routes), rejected, Remaining(), LoopGuard())
    return Pipeline(task, journal, clock, sleep_by(clock)), journal


def identity(content: bytes) -> object:
    """Return the sequence number by which the service identifies a message, if it can be read."""
    try:
        number = Message.received(content, ORIGIN).arrival.sequence_number
    except Malformed:
        number = None
    return object() if number is None else number


@given(
    st.lists(strategies.damaged(strategies.messages.map(Sections.encode)) | messages.map(Sections.encode), max_size=6)
)
def test_every_message_of_any_batch_has_one_outcome(contents: Any) -> None:
    contents = list({identity(content): content for content in contents}.values())
    output, rejects = OutputThatAccepts(), OutputThatAccepts()
    pipeline, journal = line(output, rejects)
    good = delivered(2**50, message_id="good")
    counts = asyncio.run(pipeline.run([*contents, good]))
    assert counts.total() == len(contents) + 1 == len(journal.records)
    assert counts[Outcome.RETRY] == 0
    sent, rejected = output.accepted.get("orders", []), rejects.accepted.get("rejected", [])
    assert len(sent) == counts[Outcome.SENT]
    assert len(rejected) == counts[Outcome.REJECTED]
    assert sent[-1].message_id == "good"
