"""Repeats with `from: envelope`: each event of an envelope is sent once, or there is a record of why not."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.amqp.values import string
from shared.codecs.envelope import open_envelope
from shared.message.loop_prevention import LoopGuard
from shared.message.ttl import Remaining
from shared.protocols import Outcome
from tests.fakes import (
    OutputThatFailsOnce,
    OutputThatIsDown,
    OutputThatRejects,
)
from tests.unit.line.enveloped import Alone, Line, abc, carried, event, one_text


def test_event_that_is_in_an_envelope_twice_is_sent_once_and_both_are_recorded() -> None:
    line = Line()
    a = event("a", 1)
    line.run(f"[{a},{event('b', 2)},{a}]")
    assert line.sent() == ["m-1", "m-2"]
    assert line.outcomes() == [(1, number, Outcome.SENT) for number in range(3)]
    assert [record.is_remembered for record in line.journal.records] == [False, False, True]
    assert [record.is_joined for record in line.journal.records] == [False, False, True]


def test_repeat_of_a_message_that_its_target_refuses_shares_the_reject() -> None:
    line = Line(output=OutputThatRejects(lambda _: True))
    line.run(f"[{event('a', 1)},{event('a', 1)}]")
    assert [end for _, _, end in line.outcomes()] == [Outcome.REJECTED] * 2
    assert len(line.rejects.accepted["rejected"]) == 1


def test_envelope_that_is_in_the_batch_twice_is_sent_once() -> None:
    line = Line(Alone({"m-2": "split"}))
    content = carried(abc(), 7)
    asyncio.run(line.line.run([content, content], lock_tokens=[b"1" * 16, b"2" * 16]))
    assert line.sent() == ["m-1", "m-2/0", "m-2/1", "m-2/2", "m-3"]
    assert len(line.journal.records) == 10


def test_repeats_of_events_that_stay_at_the_source_stay_too() -> None:
    line = Line(output=OutputThatIsDown())
    with pytest.raises(Exception, match="away"):
        line.run(abc(), abc())
    assert [end for _, _, end in line.outcomes()] == [Outcome.RETRY] * 6


def test_different_events_with_the_same_message_id_are_both_sent() -> None:
    line = Line()
    line.run(f"[{event('a', 1)},{event('b', 1)}]")
    assert line.sent() == ["m-1", "m-1"]


def test_event_that_the_target_could_not_accept_is_sent_at_the_retry() -> None:
    line = Line(output=OutputThatFailsOnce(1))
    line.run(f"[{event('a', 1)},{event('b', 2)}]")
    assert line.sent() == ["m-1", "m-2"]


@given(
    st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), min_size=1, max_size=6),
    st.dictionaries(st.sampled_from([f"m-{number}" for number in range(6)]), st.sampled_from(["reject", "withhold"])),
    st.sets(st.integers(0, 5)),
)
def test_each_event_is_sent_once_or_recorded_as_not_sent(
    deliveries: list[list[int]], verdicts: dict[str, str], refused: set[int]
) -> None:
    ids = {f"m-{number}" for number in refused}
    line = Line(Alone(verdicts), output=OutputThatRejects(lambda outgoing: outgoing.message_id in ids))
    for place, numbers in enumerate(deliveries):
        line.run(one_text(*(event(str(number), number) for number in numbers)), start=10 * (place + 1))
    held = {f"m-{number}" for numbers in deliveries for number in numbers}
    assert sorted(map(str, line.sent())) == sorted(held - ids - verdicts.keys())
    assert len(line.journal.records) == sum(map(len, deliveries))
    aside = [open_envelope(message.body or b"") for message in line.rejects.messages("rejected")]
    rejected = {f"m-{each.id}" for events in aside for each in events}
    assert rejected == {each for each in held if verdicts.get(each, "reject" if each in ids else "") == "reject"}


FORGERIES: Mapping[str, Mapping[str, Any]] = {
    "body": {"body": b"forged"},
    "path, which stops it": {"named": {"repl-path": string("east")}},
    "time to live": {"time_to_live": 1},
    "kind of source": {"kind": "event-hubs", "body": b"forged"},
}


@pytest.mark.parametrize("name", FORGERIES)
@pytest.mark.parametrize("together", [True, False])
def test_only_the_same_content_makes_a_copy_of_an_event(name: str, *, together: bool) -> None:
    """A producer that may add to the carrier chooses source and id, also those of a message of somebody else."""
    line = Line(ttl=Remaining(), loop_guard=LoopGuard(4))
    line.clock.advance(60)
    forged = event("a", 1, **FORGERIES[name])
    for texts in [(forged, event("a", 1))] if together else [(forged,), (event("a", 1),)]:
        line.run(*texts, start=len(line.journal.records) + 1)
    bodies = [message.body for message in line.output.messages("orders")]
    assert bodies.count(b"body") == 1
    assert not any(record.is_joined or record.is_remembered for record in line.journal.records)
    line.run(event("a", 1), start=9)
    assert line.outcomes()[-1] == (9, None, Outcome.SENT)
    assert line.journal.records[-1].is_joined


def test_events_with_equal_source_and_id_and_no_message_id_get_different_ids() -> None:
    line = Line()
    line.run(event("a", 1, message_id=None), event("a", 1, message_id=None, body=b"forged"))
    first, second = line.sent()
    assert first is not None
    assert first != second
