"""Sessions: while one is moved it is locked at both ends, and its state is there before its messages."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping

from cli.evacuation.pairs import Pair
from cli.evacuation.receivers import TIMEOUT_SECONDS, TargetReceivers
from shared.ends.service_bus.clients import service_bus_client
from shared.resend.ledger import COMPLETED, SENDING, SENT, Ledger
from shared.resend.receiver import Receiver, unavailable
from shared.resend.source import SessionUnavailable

STATE = "state/"
"""What keys of states of sessions begin with."""


class Sessions:
    """The sessions of an entity."""

    def __init__(self, pair: Pair, settings: Mapping[str, str], ledger: Ledger, targets: TargetReceivers) -> None:
        """Lock sessions of the target through *targets*."""
        self.left: dict[str, str] = {}
        """Why the state of a session was not moved."""
        self._pair = pair
        self._settings = settings
        self._ledger = ledger
        self._targets = targets

    @contextlib.asynccontextmanager
    async def opened(self, make: Callable[[str | None], Receiver], session_id: str | None) -> AsyncIterator[Receiver]:
        """Open the receiver that *make* returns; a session is locked at both ends, and has its state at the target."""
        async with make(session_id) as receiver:
            if session_id is not None:
                await self._targets.of(session_id)
                await self._copy_state(receiver, session_id)
            yield receiver

    async def ids(self) -> list[str]:
        """Return the sessions of the source that have active messages or a state."""
        async with service_bus_client(self._pair.source.setting, self._settings) as client:
            with unavailable(self._pair.source):
                return [session async for session in client.list_queue_sessions(self._pair.source.entity)]

    async def finish(self, with_messages: Iterable[str]) -> int:
        """Move the states of sessions without messages, and clear those that were moved; return how many were."""
        remaining, cleared = {*with_messages}, 0
        for session_id in await self.ids():
            if session_id in remaining:
                continue
            try:
                async with Receiver(self._pair.source, self._settings, session_id) as receiver:
                    cleared += await self._clear(receiver, session_id)
            except SessionUnavailable as error:
                self.left[session_id] = str(error)
        return cleared

    async def _clear(self, receiver: Receiver, session_id: str) -> bool:
        with unavailable(receiver.place):
            if await receiver.management.session_state(session_id, TIMEOUT_SECONDS) is None:
                return False
        if self._ledger.state(STATE + session_id) != SENT:
            await self._targets.of(session_id)
            await self._copy_state(receiver, session_id)
        with unavailable(receiver.place):
            await receiver.management.set_session_state(session_id, None, TIMEOUT_SECONDS)
        await self._note(COMPLETED, session_id)
        return True

    async def _copy_state(self, source: Receiver, session_id: str) -> None:
        """Set the state at the target; raises SessionUnavailable if it has another one there."""
        if self._ledger.state(STATE + session_id) == SENT:
            return  # the applications of the target may have changed it since
        target = await self._targets.of(session_id)
        with unavailable(source.place):
            state = await source.management.session_state(session_id, TIMEOUT_SECONDS)
        if state is None:
            return
        with unavailable(target.place):
            there = await target.management.session_state(session_id, TIMEOUT_SECONDS)
            if there is not None and there != state:
                raise SessionUnavailable(f"its session has another state in {target.place}")
            if there is None:
                await self._note(SENDING, session_id)
                await target.management.set_session_state(session_id, state, TIMEOUT_SECONDS)
        await self._note(SENT, session_id)

    async def _note(self, state: str, session_id: str) -> None:
        # Not as sent to the target: no copy of it is among the messages there.
        await self._ledger.note(state, [STATE + session_id], f"{self._pair.target}: states")
