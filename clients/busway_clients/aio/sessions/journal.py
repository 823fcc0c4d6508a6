"""A journal for asyncio."""

from collections.abc import Sequence
from datetime import datetime

from busway_clients.sessions.journal import Journaling
from busway_clients.sessions.leases import Record
from busway_clients.sessions.rows import AsyncRowStore
from busway_clients.sessions.settings import Settings
from busway_clients.steps import run_async


class Journal:
    """A journal in a store, for an operator: read what it records of a message, and decide about single messages."""

    def __init__(self, store: AsyncRowStore, settings: Settings) -> None:
        self._journaling = Journaling(store, settings)

    async def open(self) -> None:
        """Create the journal, or check that it has the same settings; raises JournalMismatch."""
        await run_async(self._journaling.open())

    async def record(self, session_id: str | None, message_ids: Sequence[str]) -> Record:
        """Return the record of a session, or of one message that is locked by itself."""
        return await run_async(self._journaling.record(session_id, message_ids))

    async def reopen(self, session_id: str | None, message_id: str) -> None:
        """
        Allow a faulted message to be processed again, after a person has fixed it and sent it again with its id.

        Raises JournalRefused if it is not faulted, and Conflict if another writes at the same moment.
        """
        await run_async(self._journaling.reopen(session_id, message_id))

    async def give_up(self, session_id: str | None, message_id: str) -> None:
        """
        Fault an open message that will not arrive any more, so that later ones continue.

        It may have expired, been purged, or been dead-lettered by Service Bus. If it arrives nevertheless it is
        dead-lettered (GivenUp). Raises JournalRefused if it is not open, or an earlier number is open, and Conflict if
        another writes at the same moment.
        """
        await run_async(self._journaling.give_up(session_id, message_id))

    async def forget(self, before: datetime) -> int:
        """
        Delete the rows of what was finished before a time, and return their number.

        A copy that arrives later is processed again: keep entries for longer than messages live, and than the clocks of
        workers may differ, since the tokens of a session without rows start again from the time of day.
        """
        return await run_async(self._journaling.forget(before))
