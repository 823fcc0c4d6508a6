"""Messages as texts for storage queues, and what a storage queue's texts become."""

import asyncio
import base64
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.amqp.sections import Sections
from shared.amqp.values import string
from shared.codecs.envelope import envelope_in, event_key, open_envelope
from shared.errors import MessageRejected
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.line.text_form import TextForm
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.message.text_messages import MOST_QUEUE_BYTES, decode_base64, number_of, text_message
from shared.message.ttl import Keep
from shared.protocols import Outcome
from tests.fakes import JournalInMemory, OutputThatAccepts
from tests.messages import ENQUEUED, ORIGIN, delivered, message
from tests.strategies import messages

STORE = Origin("store", "orders")
ENVELOPE = TextForm("copy", "store/orders", "service-bus", MOST_QUEUE_BYTES, is_xml=True)
IN_BASE64 = replace(ENVELOPE, encoding="base64")


def received(text: str, identity: str = "7d3", *, expires: int | None = None, deliveries: int = 1) -> Message:
    return Message.received(text_message(identity, text.encode(), ENQUEUED, expires, deliveries), STORE)


@given(sections=messages, form=st.sampled_from([ENVELOPE, IN_BASE64]))
def test_an_envelope_restores_every_section_bit_for_bit(sections: Sections, form: TextForm) -> None:
    sent = Message(sections, Arrival(ORIGIN, 7, None, ENQUEUED))
    content = sent.encode()
    arrived = received(replace(form, limit=10**9).text(sent, None))
    envelope = envelope_in(arrived.body or b"")
    assert envelope is not None
    (event,) = open_envelope(envelope)
    assert event.content == content


@given(st.binary(max_size=200) | st.text(max_size=80).map(str.encode) | st.sampled_from([b"{}", b"[]", b"eyJ", b"W3s"]))
def test_what_another_producer_wrote_is_no_envelope(content: bytes) -> None:
    assert envelope_in(content) is None
    assert envelope_in(base64.b64encode(content)) is None


def pipeline(output: OutputThatAccepts, **options: object) -> Pipeline:
    target = Target(output, "east", "orders")
    task = Task("back", STORE, [], Router([Route(target)]), target, Keep(), None, opens_envelopes=True, opens_some=True)
    return Pipeline(replace(task, **options), JournalInMemory())  # type: ignore[arg-type] # fields of a task


def run(line: Pipeline, texts: Sequence[str]) -> Counter[Outcome]:
    contents = [text_message(f"id-{number}", text.encode(), ENQUEUED, None, 1) for number, text in enumerate(texts)]
    return asyncio.run(line.run(contents))


def test_a_queue_may_hold_envelopes_and_plain_texts() -> None:
    output = OutputThatAccepts()
    order = message(3, body=b"an order", session_id="s", named={"colour": string("red")})
    texts = [ENVELOPE.text(order, None), '{"amount": 1}', IN_BASE64.text(message(4, body=b"another"), None), "text"]
    assert run(pipeline(output), texts) == {Outcome.SENT: 4}
    arrived = output.messages("orders")
    assert [each.body for each in arrived] == [b"an order", b'{"amount": 1}', b"another", b"text"]
    assert [each.session_id for each in arrived] == ["s", None, None, None]
    assert arrived[0].application_property("colour") == string("red")
    assert [each.message_id for each in arrived] == [string(each) for each in ("m-3", "id-1", "m-4", "id-3")]


def test_an_envelope_that_arrives_twice_is_sent_once() -> None:
    output = OutputThatAccepts()
    line, text = pipeline(output), ENVELOPE.text(message(3), None)
    assert run(line, [text]) == run(line, [text]) == {Outcome.SENT: 1}
    assert len(output.messages("orders")) == 1


def test_copies_of_an_event_have_one_key() -> None:
    first, again, forged, other = (
        ENVELOPE.text(message(number, body=body), None) for number, body in ((3, b"a"), (3, b"a"), (3, b"b"), (4, b"a"))
    )
    assert event_key(first.encode()) == event_key(again.encode())
    assert len({event_key(each.encode()) for each in (first, forged, other)}) == 3
    assert event_key(base64.b64encode(first.encode())) == event_key(first.encode())
    assert event_key(b"text") is None


def test_a_damaged_envelope_is_rejected() -> None:
    output = OutputThatAccepts()
    assert run(pipeline(output), [ENVELOPE.text(message(3), None)[:-9]]) == {Outcome.REJECTED: 1}


def test_other_producers_may_write_base64() -> None:
    output = OutputThatAccepts()
    line = pipeline(output, restore=decode_base64)
    texts = [base64.b64encode(b"\0\xff").decode(), "no base64", ENVELOPE.text(message(3), None)]
    assert run(line, texts) == {Outcome.SENT: 2, Outcome.REJECTED: 1}
    bodies = [each.body for each in output.messages("orders")]
    assert sorted(body or b"" for body in bodies) == sorted([b"\0\xff", b"no base64", b"body"])


def test_base64_of_other_producers_may_have_lines() -> None:
    output = OutputThatAccepts()
    content = bytes(range(256))
    texts = [base64.encodebytes(content).decode(), base64.encodebytes(content).decode().replace("\n", "\r\n")]
    assert run(pipeline(output, restore=decode_base64), texts) == {Outcome.SENT: 2}
    assert [each.body for each in output.messages("orders")] == [content] * 2


def test_the_time_to_live_of_a_queue_message_is_kept() -> None:
    assert received("a", expires=ENQUEUED + 90_000).time_to_live == 90_000
    assert received("a").time_to_live is None
    assert received("a", expires=ENQUEUED + 2**33).time_to_live is None


def test_a_queue_message_is_identified_at_every_delivery() -> None:
    first, again, other = received("a"), received("a", deliveries=3), received("a", "8e4")
    assert first.arrival == again.arrival
    assert first.arrival.sequence_number == number_of("7d3") != other.arrival.sequence_number
    assert 0 < number_of("7d3") < 2**63


@pytest.mark.parametrize("text", ["a\rb", "a\0b", "\x1b[1m", "￾", "\x7f\x85ä€𐍈\t\n<&>]]>"])
def test_a_body_that_xml_would_change_is_rejected(text: str) -> None:
    form = replace(ENVELOPE, body_only=True)
    body = message(1, body=text.encode())
    if text.startswith("\x7f"):
        assert form.text(body, None) == text
        return
    with pytest.raises(MessageRejected, match=r"NotText: store/orders: .* expected `encoding: base64`"):
        form.text(body, None)
    assert base64.b64decode(replace(form, encoding="base64").text(body, None)) == text.encode()


def test_a_text_has_at_most_64_kib() -> None:
    form = replace(ENVELOPE, body_only=True)
    assert len(form.text(message(1, body=b"x" * MOST_QUEUE_BYTES), None)) == MOST_QUEUE_BYTES
    with pytest.raises(MessageRejected, match="MessageSizeExceeded: store/orders: the text has 65538 bytes"):
        form.text(message(1, body="ä".encode() * 32769), None)
    with pytest.raises(MessageRejected, match="MessageSizeExceeded"):
        ENVELOPE.text(message(1, body=b"x" * 49_000), None)


def test_a_text_goes_with_its_times_and_without_keys() -> None:
    target = Target(OutputThatAccepts(), "store", "orders", texts=ENVELOPE)
    content = delivered(1, time_to_live=1500, session_id="s")
    outgoing = target.outgoing(Message.received(content, ORIGIN))
    assert (outgoing.message_id, outgoing.session_id, outgoing.partition_key) == ("m-1", None, None)
    assert (outgoing.time_to_live, outgoing.scheduled_time) == (1500, None)
