"""Tasks with `from: envelope`: each message of an envelope is sent, rejected or withheld by itself."""

import asyncio
import json

import pytest

from shared.amqp.values import string
from shared.codecs.envelope import KINDS, MOST_EVENTS, Event, encode_event, envelopes, open_envelope
from shared.editors.batch import BatchOptions, BatchStep
from shared.line.pipeline import Pipeline
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.message.ttl import Remaining
from shared.protocols import Outcome
from tests.fakes import (
    OutputThatFailsOnce,
    OutputThatRejects,
    sleep_by,
    task_facts,
)
from tests.messages import ENQUEUED, delivered
from tests.unit.editors.deduplicating import editor as deduplicate
from tests.unit.line.enveloped import WEST, Alone, Line, abc, carried, event, one_text

# Messages of an envelope


def test_messages_of_an_envelope_are_sent_one_by_one_and_recorded_as_its_parts() -> None:
    line = Line()
    line.run(abc())
    assert line.sent() == ["m-1", "m-2", "m-3"]
    assert line.outcomes() == [(1, number, Outcome.SENT) for number in range(3)]


def test_message_alone_in_its_envelope_is_recorded_whole() -> None:
    line = Line()
    line.run(event("a", 1))
    assert line.outcomes() == [(1, None, Outcome.SENT)]


def test_message_that_an_editor_rejects_goes_to_rejects_alone() -> None:
    editor = Alone({"m-2": "reject"})
    line = Line(editor)
    line.run(abc())
    assert line.sent() == ["m-1", "m-3"]
    assert [end for _, _, end in line.outcomes()] == [Outcome.SENT, Outcome.REJECTED, Outcome.SENT]
    (rejected,) = line.rejects.messages("rejected")
    assert [each.id for each in open_envelope(rejected.body or b"")] == ["b"]
    assert rejected.application_property("repl-reject-sequence") == string("1")
    # Once the cause is gone, a replay sends it and nothing else.
    editor.verdicts.clear()
    line.replay()
    assert line.sent() == ["m-1", "m-3", "m-2"]


def test_message_that_its_target_refuses_goes_to_rejects_alone_and_can_be_replayed() -> None:
    refused = {"m-2"}
    line = Line(output=OutputThatRejects(lambda outgoing: outgoing.message_id in refused))
    line.run(abc())
    assert line.sent() == ["m-1", "m-3"]
    line.replay()  # it is refused again, and still there
    assert (line.sent(), len(line.rejects.accepted["rejected"])) == (["m-1", "m-3"], 1)
    refused.clear()
    line.replay(200)
    assert line.sent() == ["m-1", "m-3", "m-2"]


def test_redelivered_envelope_does_not_reject_its_message_twice() -> None:
    line = Line(Alone({"m-2": "reject"}), output=OutputThatFailsOnce(1))
    line.run(abc())
    line.run(abc())  # the same delivery again: its lock was lost behind the send
    assert len(line.rejects.accepted["rejected"]) == 1
    assert line.sent() == ["m-1", "m-3"]


def test_filtered_messages_are_recorded_and_do_not_delay_others() -> None:
    line = Line(Alone({"m-1": "withhold", "m-3": "withhold"}))
    line.run(abc())
    assert line.sent() == ["m-2"]
    assert line.outcomes() == [(1, 0, Outcome.FILTERED), (1, 1, Outcome.SENT), (1, 2, Outcome.FILTERED)]


def test_parts_are_numbered_across_all_messages_of_the_envelope() -> None:
    line = Line(Alone({"m-2": "split"}))
    line.run(abc(), abc())
    ids = ["m-1", "m-2/0", "m-2/1", "m-2/2", "m-3"]
    assert line.sent() == ids
    assert line.outcomes() == [(number, part, Outcome.SENT) for number in (1, 2) for part in range(5)]


def test_refused_part_of_a_message_is_replayed_alone() -> None:
    refused = {"m-2/1"}
    line = Line(Alone({"m-2": "split"}), output=OutputThatRejects(lambda outgoing: outgoing.message_id in refused))
    line.run(abc())
    refused.clear()
    line.restart()
    line.replay()
    assert sorted(map(str, line.sent())) == ["m-1", "m-2/0", "m-2/1", "m-2/2", "m-3"]


def test_replays_of_two_parts_of_a_message_in_one_delivery_are_both_sent() -> None:
    refused = {"m-2/0", "m-2/1"}
    line = Line(Alone({"m-2": "split"}), output=OutputThatRejects(lambda outgoing: outgoing.message_id in refused))
    line.run(abc())
    assert line.sent() == ["m-1", "m-2/2", "m-3"]
    refused.clear()
    line.replay()
    assert line.sent() == ["m-1", "m-2/2", "m-3", "m-2/0", "m-2/1"]


def test_envelope_that_asks_for_a_part_that_it_does_not_have_is_not_lost() -> None:
    forged = {
        "repl-reject-part": "1",
        "repl-reject-parts": "9",
        "repl-reject-task": "copy",
        "repl-reject-source": "east/carrier",
    }
    line = Line(Alone({}))
    named = {name: string(value) for name, value in forged.items()}
    asyncio.run(line.line.run([delivered(1, body=abc().encode(), named=named)]))
    assert [end for _, _, end in line.outcomes()] == [Outcome.REJECTED] * 3
    assert len(line.rejects.accepted["rejected"]) == 3


def test_messages_of_an_envelope_can_be_joined() -> None:
    options = BatchOptions.model_validate({"as": "json-array"})
    batch = BatchStep(batch=options).editor(task_facts())
    line = Line(batch)
    asyncio.run(line.line.run([carried(one_text(*(json_event(str(number), number) for number in range(3))))]))
    (joined,) = line.output.messages("orders")
    assert json.loads(joined.body or b"") == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert line.outcomes() == [(1, number, Outcome.SENT) for number in range(3)]


def json_event(identity: str, number: int) -> str:
    body = json.dumps({"n": number}).encode()
    content = Message.received(delivered(number, body=body, content_type="application/json"), WEST).encode()
    return encode_event(Event("west/orders", identity, "service-bus", content))


def test_deduplicate_remembers_the_messages_of_envelopes() -> None:
    line = Line(deduplicate())
    line.run(abc())
    line.line = Pipeline(line.task, line.journal, line.clock, sleep_by(line.clock))
    line.run(one_text(event("other", 2), event("new", 4)), start=2)
    assert line.sent() == ["m-1", "m-2", "m-3", "m-4"]
    assert line.outcomes()[3:] == [(2, 0, Outcome.FILTERED), (2, 1, Outcome.SENT)]


# Ids, sessions and times of the messages


def test_messages_without_an_id_get_different_ids_that_do_not_depend_on_the_envelope() -> None:
    contents = [Message.received(delivered(number, message_id=None), WEST).encode() for number in (1, 2)]
    one, two = (
        encode_event(Event("s", str(number), "service-bus", content)) for number, content in enumerate(contents)
    )
    line, other = Line(), Line()
    line.run(f"[{one},{two}]")
    other.run(two, one, start=50)
    assert len(set(line.sent())) == 2
    assert other.sent() == line.sent()[::-1]


def test_stamps_use_the_sequence_number_of_the_envelope_and_not_of_the_first_source() -> None:
    inner = delivered(7_777, named={}, enqueued=ENQUEUED - 1_000_000)
    line = Line()
    line.run(encode_event(Event("s", "i", "service-bus", inner)), start=5)
    (sent,) = line.output.messages("orders")
    assert sent.application_property("repl-sequence") == string("5")
    assert sent.sections.message_annotations == b""


def test_an_envelope_within_an_envelope_is_sent_as_a_message() -> None:
    inner = carried(abc(), 3)
    line = Line()
    line.run(encode_event(Event("s", "i", "service-bus", Message.received(inner, WEST).encode())))
    (sent,) = line.output.messages("orders")
    assert len(open_envelope(sent.body or b"")) == 3


def test_each_message_of_an_envelope_keeps_its_session() -> None:
    contents = [Message.received(delivered(n, session_id=f"s-{n}"), WEST).encode() for n in (1, 2)]
    line = Line()
    line.run(
        one_text(*(encode_event(Event("s", str(n), "service-bus", content)) for n, content in enumerate(contents)))
    )
    assert [message.session_id for message in line.output.accepted["orders"]] == ["s-1", "s-2"]


def test_remaining_time_to_live_is_counted_from_the_arrival_of_the_envelope() -> None:
    contents = [
        Message.received(delivered(n, time_to_live=life), WEST).encode() for n, life in ((1, 1_000), (2, 60_000))
    ]
    line = Line(ttl=Remaining())
    line.clock.advance(7)
    line.run(
        one_text(*(encode_event(Event("s", str(n), "service-bus", content)) for n, content in enumerate(contents)))
    )
    (sent,) = line.output.messages("orders")
    assert (sent.message_id, sent.time_to_live) == (string("m-2"), 53_000)
    assert [end for _, _, end in line.outcomes()] == [Outcome.EXPIRED, Outcome.SENT]


def test_envelopes_of_a_hub_are_opened_in_each_partition() -> None:
    line = Line(origin=Origin("east", "carrier-hub"))
    content = carried(abc(), 1)
    asyncio.run(line.line.run([content], "0"))
    asyncio.run(line.line.run([content], "1"))
    assert line.sent() == ["m-1", "m-2", "m-3"]
    assert {record.arrival.origin.partition for record in line.journal.records} == {"0", "1"}


# Messages that are not envelopes, and limits


@pytest.mark.parametrize(
    "body",
    [
        b"", b"text", b"{}", b"[]", b"[1]", b"null", b'{"specversion": "1.0"}', b"\xff", b"[" * 100_000, b"1" * 10_000,
        encode_event(Event("s", "i", "kafka", b"x")).encode(),
        encode_event(Event("s", "i", KINDS[0], b"x")).replace('"eA=="', '"e"').encode(),
        encode_event(Event("s", "i", KINDS[0], b"x")).replace('"eA=="', '"\N{COMBINING ACUTE ACCENT}"').encode(),
        encode_event(Event("s", "", KINDS[0], b"x")).encode(),
        encode_event(Event("s", "i", KINDS[0], b"x")).replace('"s"', "7").encode(),
        encode_event(Event("s", "i", KINDS[0], b"x")).replace('"eA=="', "null").encode(),
    ],
)  # fmt: skip
def test_message_that_is_not_an_envelope_is_rejected(body: bytes) -> None:
    line = Line()
    asyncio.run(line.line.run([delivered(1, body=body), carried(event("a", 2), 2)]))
    assert line.sent() == ["m-2"]
    assert line.outcomes() == [(1, None, Outcome.REJECTED), (2, None, Outcome.SENT)]
    (rejected,) = line.rejects.messages("rejected")
    assert rejected.body == body


def test_envelope_with_an_event_that_is_not_a_message_is_rejected() -> None:
    line = Line()
    broken = encode_event(Event("west/orders", "z", "service-bus", b"\x00\x53\x73\xc0"))
    line.run(f"[{event('a', 1)},{broken}]")
    assert line.sent() == []
    assert line.outcomes() == [(1, None, Outcome.REJECTED)]


def test_event_ids_with_lone_surrogates_are_accepted() -> None:
    line = Line(Alone({"m-2": "reject"}))
    line.run(one_text(event("\ud800", 1), event("\udc00", 2)))
    assert [end for _, _, end in line.outcomes()] == [Outcome.SENT, Outcome.REJECTED]


def test_number_of_events_in_an_envelope_is_limited_for_sender_and_receiver() -> None:
    line = Line()
    line.run(f"[{','.join(['1'] * (MOST_EVENTS + 1))}]")
    assert line.outcomes() == [(1, None, Outcome.REJECTED)]
    texts = envelopes(["{}"] * (MOST_EVENTS + 1), 10_000_000)
    assert [len(json.loads(text)) if text[0] == "[" else 1 for text in texts] == [MOST_EVENTS, 1]


def test_rejects_of_a_large_envelope_take_no_more_room_than_the_envelope() -> None:
    line = Line(output=OutputThatRejects(lambda _: True))
    text = one_text(*(event(str(number), number) for number in range(500)))
    with pytest.raises(Exception, match="rejected messages in a row"):
        line.run(text)
    held = line.rejects.accepted["rejected"]
    assert sum(len(message.content) for message in held) < 2 * len(text)
