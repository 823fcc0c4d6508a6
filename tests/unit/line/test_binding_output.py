"""Routes that send through an output binding, and tasks that take envelopes."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.amqp.sections import Sections
from shared.amqp.values import Value, string
from shared.codecs.envelope import KINDS, Event, encode_event, envelopes, open_envelope
from shared.errors import MessageRejected, TargetRefused
from shared.line.binding_output import BindingOutput, body_text, collecting
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.message.ttl import Keep
from shared.protocols import Outcome
from tests.fakes import JournalInMemory, OutputThatAccepts, OutputThatFailsOnce, clock_at_delivery, sleep_by
from tests.messages import delivered
from tests.strategies import messages

WEST, CARRIER = Origin("west", "orders"), Origin("east", "carrier")


def binding(**options: Any) -> BindingOutput:
    return BindingOutput("east", "EAST", "queue", "carrier", source_kind="service-bus", **options)


def pipeline(origin: Origin, *targets: Target, opens: bool = False, journal: JournalInMemory | None = None) -> Pipeline:
    router = Router([Route(each) for each in targets])
    rejects = Target(OutputThatAccepts(), "west", "rejected")
    task = Task("copy", origin, [], router, rejects, Keep(), None, opens_envelopes=opens)
    clock = clock_at_delivery()
    return Pipeline(task, journal or JournalInMemory(), clock, sleep_by(clock))


def handed_over(output: BindingOutput, batch: Sequence[bytes], journal: JournalInMemory | None = None) -> list[str]:
    """Return the texts that the host gets for a batch."""
    line = pipeline(WEST, Target(output, "east", "carrier", binding=output), journal=journal)
    assert line.bindings == (output,)
    with collecting() as collected:
        asyncio.run(line.run(batch))
    return output.texts(collected[output])


def carried(text: str, number: int = 1) -> bytes:
    """Return an envelope as the service delivers it: the host has made the text the body of a new message."""
    return delivered(number, message_id=None, body=text.encode(), content_type="text/plain")


@given(st.lists(messages, min_size=1, max_size=5))
def test_envelope_restores_every_section_bit_for_bit(sections: list[Sections]) -> None:
    encoded = [Message(each, Message.received(delivered(1), WEST).arrival).encode() for each in sections]
    events = [Event("west/orders", str(number), "service-bus", content) for number, content in enumerate(encoded)]
    texts = envelopes([encode_event(event) for event in events], 2_000)
    assert [event for text in texts for event in open_envelope(text.encode())] == events
    for event in events:
        arrival = Message.received(delivered(7), CARRIER).arrival
        opened = Message.contained(event.content, arrival)
        assert opened.encode() == Message.received(event.content, CARRIER).encode()
        assert opened.arrival.sequence_number == 7


def test_function_gets_few_texts_below_the_limit() -> None:
    batch = [delivered(number, body=b"x" * 100) for number in range(50)]
    texts = handed_over(binding(max_message_bytes=4_000), batch)
    assert all(len(text) <= 4_000 for text in texts)
    assert 2 <= len(texts) < 20
    opened = [event for text in texts for event in open_envelope(text.encode())]
    assert [Message.received(each.content, CARRIER).message_id for each in opened] == [
        string(f"m-{number}") for number in range(50)
    ]
    assert {(each.source, each.kind) for each in opened} == {("west/orders", "service-bus")}
    # One text is a CloudEvent in structured mode, several are a batch.
    alone = json.loads(handed_over(binding(), [delivered(1)])[0])
    assert (alone["specversion"], alone["type"]) == ("1.0", "busway.message")


def test_journal_marks_what_the_host_was_asked_to_send() -> None:
    journal = JournalInMemory()
    handed_over(binding(), [delivered(1)], journal)
    assert [(record.outcome, record.is_handed_over) for record in journal.records] == [(Outcome.SENT, True)]


def test_batch_that_comes_again_is_handed_over_again() -> None:
    output = binding()
    line = pipeline(WEST, Target(output, "east", "carrier", binding=output))
    found = []
    for _ in range(2):
        with collecting() as collected:
            asyncio.run(line.run([delivered(1), delivered(2)]))
        found.append(output.texts(collected[output]))
    # The host may have failed to send them, and their ids let the other side recognize them.
    assert found[0] == found[1]


def test_task_without_bindings_declares_none() -> None:
    assert pipeline(WEST, Target(OutputThatAccepts(), "east", "orders")).bindings == ()


def test_batch_stays_at_the_source_if_no_function_collects_it() -> None:
    output = binding()
    with pytest.raises(TargetRefused, match="outside of a function that has its output binding"):
        asyncio.run(pipeline(WEST, Target(output, "east", "carrier", binding=output)).run([delivered(1)]))


def test_message_that_does_not_fit_in_a_text_is_rejected() -> None:
    rejects, output = OutputThatAccepts(), binding(max_message_bytes=1_000)
    router = Router([Route(Target(output, "east", "carrier", binding=output))])
    line = Pipeline(
        Task("copy", WEST, [], router, Target(rejects, "west", "rejected"), Keep(), None), JournalInMemory()
    )
    with collecting() as collected:
        asyncio.run(line.run([delivered(1, body=b"x" * 1_000), delivered(2)]))
    assert len(open_envelope(output.texts(collected[output])[0].encode())) == 1
    (rejected,) = rejects.messages("rejected")
    assert rejected.application_property("repl-reject-reason") == string("MessageSizeExceeded")


@pytest.mark.parametrize("body", [b"", b"plain", "žluťoučký".encode(), b'{"a": 1}', b"[1, 2]", b"[INFO] x [ok]"])
def test_body_only_sends_the_body_as_it_is(body: bytes) -> None:
    assert handed_over(binding(body_only=True), [delivered(1, body=body)]) == [body.decode()]


@pytest.mark.parametrize("body", [b"\xff", b"\xed\xa0\x80", b"a\x80"])
def test_body_that_is_no_text_is_rejected(body: bytes) -> None:
    with pytest.raises(MessageRejected, match="NotText: body is not UTF-8 at byte"):
        body_text(Message.received(delivered(1, body=body), WEST))


# Taking envelopes


def opened_by(line: Pipeline, *texts: str, start: int = 1) -> None:
    asyncio.run(line.run([carried(text, start + number) for number, text in enumerate(texts)]))


def event(identity: str, number: int, named: Mapping[str, Value] | None = None) -> str:
    content = Message.received(delivered(number, named=named), WEST).encode()
    return encode_event(Event("west/orders", identity, "service-bus", content))


def test_messages_of_an_envelope_are_sent_one_by_one_and_recorded_as_its_parts() -> None:
    output, journal = OutputThatAccepts(), JournalInMemory()
    opened_by(pipeline(CARRIER, Target(output, "east", "orders"), opens=True, journal=journal), *envelopes(
        [event("a", 1), event("b", 2), event("c", 3)], 100_000
    ))  # fmt: skip
    assert output.ids("orders") == ["m-1", "m-2", "m-3"]
    assert [record.part for record in journal.records] == [0, 1, 2]


def test_repeated_envelope_is_taken_once_even_if_the_host_grouped_it_otherwise() -> None:
    output = OutputThatAccepts()
    line = pipeline(CARRIER, Target(output, "east", "orders"), opens=True)
    a, b, c = event("a", 1), event("b", 2), event("c", 3)
    opened_by(line, f"[{a},{b}]")
    opened_by(line, a, f"[{b},{c}]", f"[{c},{a}]", start=10)
    assert output.ids("orders") == ["m-1", "m-2", "m-3"]


def test_events_of_one_message_id_are_not_taken_for_each_other() -> None:
    output = OutputThatAccepts()
    line = pipeline(CARRIER, Target(output, "east", "orders"), opens=True)
    opened_by(line, f"[{event('a', 1)},{event('b', 1)}]")
    assert output.ids("orders") == ["m-1", "m-1"]


def test_event_that_its_target_could_not_take_is_sent_when_the_envelope_comes_again() -> None:
    output = OutputThatFailsOnce(1)
    line = pipeline(CARRIER, Target(output, "east", "orders"), opens=True)
    opened_by(line, f"[{event('a', 1)},{event('b', 2)}]")
    assert output.ids("orders") == ["m-1", "m-2"]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"text", b"{}", b"[]", b"[1]", b"null", b'{"specversion": "1.0"}', b"\xff",
        encode_event(Event("s", "i", "kafka", b"x")).encode(),
        encode_event(Event("s", "i", KINDS[0], b"x")).replace('"eA=="', '"e"').encode(),
        encode_event(Event("s", "", KINDS[0], b"x")).encode(),
    ],
)  # fmt: skip
def test_body_that_is_no_envelope_is_rejected_whole(body: bytes) -> None:
    output, journal = OutputThatAccepts(), JournalInMemory()
    line = pipeline(CARRIER, Target(output, "east", "orders"), opens=True, journal=journal)
    asyncio.run(line.run([delivered(1, body=body), carried(event("a", 2), 2)]))
    assert output.ids("orders") == ["m-2"]
    assert [record.outcome for record in journal.records] == [Outcome.REJECTED, Outcome.SENT]


def test_event_whose_content_is_no_message_rejects_its_envelope() -> None:
    output, journal = OutputThatAccepts(), JournalInMemory()
    broken = encode_event(Event("west/orders", "z", "service-bus", b"\x00\x53\x73\xc0"))
    line = pipeline(CARRIER, Target(output, "east", "orders"), opens=True, journal=journal)
    opened_by(line, f"[{event('a', 1)},{broken}]")
    assert output.ids("orders") == []
    assert [record.outcome for record in journal.records] == [Outcome.REJECTED]
