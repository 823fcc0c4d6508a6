"""Sessions: while one is moved it is locked at both ends, and its state is there before its messages."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

from cli.evacuation.pairs import Pair
from cli.evacuation.receivers import TIMEOUT_SECONDS, TargetReceivers
from shared.ends.service_bus.clients import service_bus_client
from shared.resend.ledger import COMPLETED, SENDING, SENT, Ledger
from shared.resend.receiver import Receiver, unavailable
from shared.resend.source import LockedMessage, SessionUnavailable, Source

STATE = "session state"
"""What the ledger calls the state of a session."""
_PREFIX = "state/"


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
    async def opened(self, session_id: str | None, make: Callable[[Receiver], Source]) -> AsyncIterator[Source]:
        """Lock a session at both ends, copy its state, and give what *make* makes of it."""
        async with Receiver(self._pair.source, self._settings, session_id) as receiver:
            await self._targets.of(session_id)
            await self._copy_state(receiver, session_id or "")
            yield _SessionSource(make(receiver), self._targets)

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
        if self._ledger.state(_PREFIX + session_id) != SENT:
            await self._targets.of(session_id)
            await self._copy_state(receiver, session_id)
        with unavailable(receiver.place):
            await receiver.management.set_session_state(session_id, None, TIMEOUT_SECONDS)
        await self._note(COMPLETED, session_id)
        return True

    async def _copy_state(self, source: Receiver, session_id: str) -> None:
        """Set the state at the target; raises SessionUnavailable if it has another one there."""
        if self._ledger.state(_PREFIX + session_id) == SENT:
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
        before, self._ledger.share = self._ledger.share, STATE
        await self._ledger.note(state, [_PREFIX + session_id], str(self._pair.destination))
        self._ledger.share = before


class _SessionSource:
    """A source that also keeps the session locked at the target."""

    removes = True

    def __init__(self, source: Source, targets: TargetReceivers) -> None:
        self._source = source
        self._targets = targets

    async def receive(self, count: int, seconds: float) -> list[LockedMessage] | None:
        return await self._source.receive(count, seconds)

    async def complete(self, messages: Sequence[LockedMessage]) -> list[LockedMessage]:
        return await self._source.complete(messages)

    async def give_back(self, messages: Iterable[LockedMessage]) -> None:
        await self._source.give_back(messages)

    async def renew(self, messages: Sequence[LockedMessage]) -> list[LockedMessage]:
        await self._targets.keep()
        return await self._source.renew(messages)

    def may_send(self, message: LockedMessage) -> bool:
        return self._source.may_send(message)
