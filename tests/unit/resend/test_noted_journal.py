"""What a repair notes in its ledger when its journal or its ledger did not answer."""

import asyncio
from collections.abc import Iterable, Sequence

import pytest

from shared.errors import TargetUnavailable
from shared.journal.imprints import Imprinter
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.protocols import Entry, Outcome, Record
from shared.resend.pipeline_delivery import NotedJournal
from tests.fakes import JournalInMemory
from tests.messages import delivered


def test_what_could_not_be_noted_is_noted_as_itself_when_another_message_is_in_hand() -> None:
    in_hand, noted, fails = "first", list[str](), True

    def key_in_hand(_: Arrival) -> str:
        return in_hand

    async def note(keys: Iterable[str]) -> None:
        if fails:
            raise TargetUnavailable("the ledger did not answer")
        noted.extend(keys)

    async def run() -> None:
        nonlocal in_hand, fails
        journal = NotedJournal(JournalInMemory(), key_in_hand, note)
        arrival = Message.received(delivered(1), Origin("west", "orders")).arrival
        write = journal.decided([Record("copy", arrival, "m-1", Outcome.SENT, "east/orders", None)], 1)
        with pytest.raises(TargetUnavailable):
            await write()
        in_hand, fails = "second", False
        await write()

    asyncio.run(run())
    assert noted == ["first"]


def test_the_results_of_two_messages_without_numbers_are_counted_apart() -> None:
    """The ledger names them; their arrivals are alike."""
    in_hand, noted, fails = "first", list[str](), True

    async def note(keys: Iterable[str]) -> None:
        noted.extend(keys)

    class JournalThatFails(JournalInMemory):
        async def _keep(self, records: Sequence[Record]) -> None:
            if fails:
                raise TargetUnavailable("the journal is away")
            await super()._keep(records)

    async def run() -> None:
        nonlocal in_hand, fails
        journal = NotedJournal(JournalThatFails(), lambda _: in_hand, note)
        message = Message.received(delivered(1), Origin("west", "orders"))
        arrival, imprint = message.arrival, Imprinter(()).arriving(message)
        record = Record("copy", arrival, "m-1", Outcome.SENT, "east/orders", None)
        journal.received([Entry(arrival, imprint, 1)], 1)
        first = journal.decided([record], 1)
        with pytest.raises(TargetUnavailable):
            await first()
        in_hand, fails = "second", False
        journal.received([Entry(arrival, imprint, 2)], 2)
        for write in (first, journal.decided([record], 2)):
            await write()
        assert noted == ["first"], "the second waits for another target"
        await journal.decided([record], 2)()

    asyncio.run(run())
    assert noted == ["first", "second"]
