"""Redelivered batches, and messages that are in a batch twice."""

import pytest

from shared.amqp.sections import split
from shared.errors import MessageRejected, TargetUnavailable
from shared.message.message import Message
from shared.protocols import Outcome
from tests.fakes import (
    OutputThatAccepts,
    OutputThatIsDown,
)
from tests.messages import ENQUEUED, delivered
from tests.unit.line.copying import Editing, Line


def test_a_message_of_a_recreated_entity_is_sent_despite_an_equal_sequence_number() -> None:
    output = OutputThatAccepts()
    line = Line(output)
    line.run(delivered(1, message_id="old"))
    line.run(delivered(1, message_id="new", enqueued=ENQUEUED + 1))
    assert output.ids("orders") == ["old", "new"]


def test_a_message_without_a_sequence_number_is_sent_at_every_delivery() -> None:
    output = OutputThatAccepts()
    line = Line(output)
    line.run(delivered(None, message_id="a"))
    line.run(delivered(None, message_id="a"))
    assert output.ids("orders") == ["a", "a"]


def test_a_redelivered_message_is_not_rejected_twice() -> None:
    def refuse(message: Message) -> list[Message]:
        if message.arrival.sequence_number == 1:
            raise MessageRejected("Poison", "it is poison")
        return [message]

    output = OutputThatIsDown()
    line = Line(output, editors=[Editing(refuse)])
    with pytest.raises(TargetUnavailable):
        line.run(delivered(1), delivered(2))
    output.put_up()
    assert line.run(delivered(1), delivered(2)) == {Outcome.REJECTED: 1, Outcome.SENT: 1}
    assert len(line.rejected()) == 1


def test_both_records_of_a_message_that_is_in_a_batch_twice_have_its_id() -> None:
    def edit(message: Message) -> list[Message]:
        if message.arrival.sequence_number == 1:
            raise MessageRejected("Poison", "it is poison")
        return [] if message.arrival.sequence_number == 2 else [message]

    line = Line(editors=[Editing(edit)])
    counts = line.run(*[delivered(number, delivery_count=count) for count in (0, 1) for number in (1, 2, 3)])
    assert counts == {Outcome.REJECTED: 2, Outcome.FILTERED: 2, Outcome.SENT: 2}
    assert [(record.outcome, record.message_id) for record in line.journal.records] == [
        (Outcome.REJECTED, "m-1"),
        (Outcome.FILTERED, "m-2"),
        (Outcome.SENT, "m-3"),
    ] * 2


def test_both_records_of_an_unreadable_message_that_is_in_a_batch_twice_have_no_id() -> None:
    raw = split(delivered(1))
    raw.properties = b"\x00\x53\x73\xc0\x03\x0d\xa1\x7f"
    line = Line()
    assert line.run(raw.encode(), raw.encode()) == {Outcome.REJECTED: 2}
    assert len(line.rejected()) == 1
    assert line.journal.records[1].message_id is None
