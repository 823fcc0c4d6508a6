"""Redelivered batches, and messages that are in a batch twice."""

import asyncio
from collections.abc import Sequence

from shared.amqp.sections import split
from shared.errors import BuswayError, MessageRejected
from shared.message.message import Message
from shared.protocols import Outcome, Outgoing
from tests.fakes import (
    OutputThatAccepts,
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


class OutputThatHolds(OutputThatAccepts):
    """Answers when it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.released = asyncio.Event()

    async def send(
        self, entity: str, messages: Sequence[Outgoing], *, timeout_seconds: float
    ) -> list[BuswayError | None]:
        await self.released.wait()
        return await super().send(entity, messages, timeout_seconds=timeout_seconds)


def test_other_messages_do_not_wait_for_an_earlier_delivery() -> None:
    output = OutputThatHolds()
    line = Line(output)

    async def deliver() -> None:
        running = []
        for number in (1, 2):
            running.append(asyncio.create_task(line.pipeline.run([delivered(number)])))
            await asyncio.sleep(0)
        output.released.set()
        await asyncio.gather(*running)

    asyncio.run(deliver())
    assert sorted(map(str, output.ids("orders"))) == ["m-1", "m-2"]
    assert line.clock.monotonic() == 0
