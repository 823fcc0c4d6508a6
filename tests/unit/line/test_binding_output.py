"""Routes that send through an output binding, and tasks that take envelopes."""

import asyncio
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.amqp.sections import Sections
from shared.amqp.values import long, string
from shared.codecs.envelope import Event, encode_event, envelopes, open_envelope
from shared.errors import MessageRejected, TargetRefused, TargetUnavailable
from shared.line.binding_output import DEFAULT_MAX_MESSAGE_BYTES, BindingOutput, collecting
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.line.text_form import TextForm, body_text
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.message.ttl import Keep
from shared.protocols import BatchEditor, Outcome
from shared.rules.rule import parse_filter
from tests.fakes import (
    JournalInMemory,
    OutputThatAccepts,
    OutputThatFailsOnce,
    OutputThatIsDown,
    clock_at_delivery,
    sleep_by,
)
from tests.messages import delivered
from tests.strategies import messages
from tests.unit.editors.deduplicating import editor as deduplicate

WEST, CARRIER = Origin("west", "orders"), Origin("east", "carrier")


def binding(*, task: str = "copy", limit: int = DEFAULT_MAX_MESSAGE_BYTES, body_only: bool = False) -> BindingOutput:
    form = TextForm(task, "east/carrier", "service-bus", limit, body_only)
    return BindingOutput(form, "east", "EAST", "queue", "carrier")


def pipeline(origin: Origin, *targets: Target, opens: bool = False, journal: JournalInMemory | None = None) -> Pipeline:
    router = Router([Route(target) for target in targets])
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


@given(st.lists(messages, min_size=1, max_size=5))
def test_envelope_restores_every_section_bit_for_bit(sections: list[Sections]) -> None:
    encoded = [Message(section, Message.received(delivered(1), WEST).arrival).encode() for section in sections]
    events = [Event("west/orders", str(number), "service-bus", content) for number, content in enumerate(encoded)]
    texts = envelopes([encode_event(event) for event in events], 2_000)
    assert [event for text in texts for event in open_envelope(text.encode())] == events
    for event in events:
        arrival = Message.received(delivered(7), CARRIER).arrival
        opened = Message.contained(event.content, arrival)
        assert opened.encode() == Message.received(event.content, CARRIER).encode()
        assert opened.arrival.sequence_number == 7


def test_function_gets_as_few_texts_as_the_size_limit_allows() -> None:
    batch = [delivered(number, body=b"x" * 100) for number in range(50)]
    texts = handed_over(binding(limit=4_000), batch)
    assert all(len(text) <= 4_000 for text in texts)
    assert 2 <= len(texts) < 20
    opened = [event for text in texts for event in open_envelope(text.encode())]
    assert [Message.received(event.content, CARRIER).message_id for event in opened] == [
        string(f"m-{number}") for number in range(50)
    ]
    assert {(event.source, event.kind) for event in opened} == {("west/orders", "service-bus")}
    # One text is a CloudEvent in structured mode, several are a batch.
    alone = json.loads(handed_over(binding(), [delivered(1)])[0])
    assert (alone["specversion"], alone["type"]) == ("1.0", "busway.message")


def test_journal_marks_what_the_host_was_asked_to_send() -> None:
    journal = JournalInMemory()
    handed_over(binding(), [delivered(1)], journal)
    assert [(record.outcome, record.is_handed_over) for record in journal.records] == [(Outcome.SENT, True)]


def test_redelivered_batch_is_given_to_the_binding_again() -> None:
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
    rejects, output = OutputThatAccepts(), binding(limit=1_000)
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
def test_body_that_is_not_text_is_rejected(body: bytes) -> None:
    with pytest.raises(MessageRejected, match="NotText: body is not UTF-8 at byte"):
        body_text(Message.received(delivered(1, body=body), WEST))


def two_routes(output: BindingOutput, other: OutputThatAccepts, *editors: BatchEditor) -> tuple[Task, JournalInMemory]:
    """Return a task that sends messages with the property `sdk` with the SDK, and the others through the binding."""
    router = Router(
        [
            Route(Target(other, "east", "orders"), parse_filter("sdk = 1")),
            Route(Target(output, "east", "c", binding=output)),
        ]
    )
    return Task("copy", WEST, editors, router, None, Keep(), None), JournalInMemory()


def test_no_message_counts_as_sent_if_another_target_keeps_the_batch_at_its_source() -> None:
    output = binding()
    task, journal = two_routes(output, OutputThatIsDown())
    clock = clock_at_delivery()
    line = Pipeline(task, journal, clock, sleep_by(clock))
    with pytest.raises(TargetUnavailable), collecting() as collected:
        asyncio.run(line.run([delivered(1), delivered(2, named={"sdk": long(1)}), delivered(3)]))
    # The function raises, so the host is asked for nothing.
    assert [record.outcome for record in journal.records] == [Outcome.RETRY] * 3
    assert not any(record.is_handed_over for record in journal.records)
    assert len(collected[output]) == 2


def test_short_outage_of_another_target_gives_each_message_to_the_binding_once() -> None:
    output = binding()
    task, journal = two_routes(output, OutputThatFailsOnce())
    clock = clock_at_delivery()
    with collecting() as collected:
        asyncio.run(
            Pipeline(task, journal, clock, sleep_by(clock)).run([delivered(1), delivered(2, named={"sdk": long(1)})])
        )
    assert len(collected[output]) == 1
    assert [(record.outcome, record.is_handed_over) for record in journal.records] == [
        *((Outcome.SENT, True), (Outcome.SENT, False))
    ]


def test_message_that_the_host_could_not_send_is_not_withheld_at_its_redelivery() -> None:
    output = binding()
    task, journal = two_routes(output, OutputThatAccepts(), deduplicate())
    line = Pipeline(task, journal)
    found = []
    for number in (1, 1, 2):
        with collecting() as collected:
            asyncio.run(line.run([delivered(number, message_id="same")]))
        found.append(len(collected.get(output, [])))
    # Whether the host has sent them is not known: each is handed over.
    assert found == [1, 1, 1]


def test_same_message_has_different_event_ids_in_different_tasks() -> None:
    message = Message.received(delivered(1), WEST)
    texts = [binding(task=task).form.text(message, None) for task in ("copy", "fan-out")]
    ids = [open_envelope(text.encode())[0].id for text in texts]
    assert len(set(ids)) == 2


def test_event_that_is_forwarded_in_an_envelope_keeps_its_id() -> None:
    first = open_envelope(handed_over(binding(), [delivered(1)])[0].encode())[0]
    texts = []
    for number in (8, 9):  # the first host has sent it twice
        line = pipeline(CARRIER, Target(output := binding(), "east", "next", binding=output), opens=True)
        with collecting() as collected:
            asyncio.run(line.run([delivered(number, message_id=None, body=encode_event(first).encode())]))
        texts += output.texts(collected[output])
    one, two = (open_envelope(text.encode())[0] for text in texts)
    assert (one.source, one.id, one.kind) == (two.source, two.id, "service-bus")
