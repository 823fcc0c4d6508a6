"""What a repair notes in its ledger when its journal or its ledger did not answer."""

import asyncio
from collections.abc import Iterable

import pytest

from shared.errors import TargetUnavailable
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.protocols import Outcome, Record
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
