"""The journal of a resend: the ledger learns that a message is done once all of its targets have a result."""

import asyncio
from collections.abc import Iterable, Sequence

from shared.journal.imprints import Imprinter
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.protocols import Entry, Outcome, Record
from shared.resend.pipeline_delivery import NotedJournal
from tests.fakes import JournalInMemory
from tests.messages import delivered

MESSAGE = Message.received(delivered(1), Origin("west", "orders"))
SENT, RETRY = Outcome.SENT, Outcome.RETRY


def noted(*attempts: Sequence[Sequence[Outcome]], targets: int | None = 3) -> list[int]:
    """Return how many messages are noted after each flush of each attempt, which has a list of outcomes for each."""
    counts: list[int] = []
    found: list[Arrival] = []

    async def note(arrivals: Iterable[Arrival]) -> None:
        found.extend(arrivals)

    async def run() -> None:
        journal = NotedJournal(JournalInMemory(), note)
        for flushes in attempts:
            if targets is not None:
                journal.received([Entry(MESSAGE.arrival, Imprinter().arriving(MESSAGE), targets)], 1)
            for outcomes in flushes:
                records = [Record("copy", MESSAGE.arrival, None, outcome, None, None) for outcome in outcomes]
                await journal.decided(records, 1)()
                counts.append(len(found))

    asyncio.run(run())
    return counts


def test_a_message_is_done_when_its_last_target_has_a_result() -> None:
    assert noted([[SENT, SENT], [SENT]]) == [0, 1]
    assert noted([[SENT, SENT], [RETRY]]) == [0, 0]
    assert noted([[SENT, SENT], [RETRY]], [[SENT, SENT, SENT]]) == [0, 0, 1]
    assert noted([[RETRY]], [[RETRY]], [[SENT]], targets=1) == [0, 0, 1]
    assert noted([[RETRY]], [[SENT]], targets=None) == [0, 1]
