"""
The receivers of an evacuation.

Those of the target set messages aside there, and hold sessions while they are moved: a session is locked at both ends,
and its state is there before its messages.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, takewhile

from azure.servicebus.exceptions import MessageLockLostError, MessageNotFoundError, SessionLockLostError

from cli.evacuation.pairs import Pair
from shared.clock import Clock
from shared.ends.azure_amqp.raw_link import Delivery
from shared.ends.service_bus.clients import service_bus_client
from shared.errors import TargetUnavailable
from shared.resend.ledger import COMPLETED, SENDING, SENT, Ledger
from shared.resend.letters import number_in
from shared.resend.peek import by_partition, partition_of
from shared.resend.places import Place
from shared.resend.receiver import Receiver, by_halves, unavailable
from shared.resend.source import LockedMessage, SessionUnavailable

TIMEOUT_SECONDS = 30.0
# The shortest lock of a session is five seconds.
_RENEWAL_SECONDS = 2.0


class TargetReceivers:
    """One receiver at a time: of the target, or of one of its sessions."""

    def __init__(self, place: Place, settings: Mapping[str, str], clock: Clock | None = None) -> None:
        self._clock = clock
        self._place = place
        self._settings = settings
        self._receiver: Receiver | None = None
        self._renewed = 0.0

    async def of(self, session_id: str | None) -> Receiver:
        """Return the receiver of the entity, or of a session, which it locks; raises SessionUnavailable."""
        if self._receiver is None or self._receiver.session_id != session_id:
            await self.close()
            opened = Receiver(self._place, self._settings, session_id, clock=self._clock)
            try:
                await opened.__aenter__()
            except SessionUnavailable as error:
                raise SessionUnavailable(f"its session is locked by a receiver of {self._place}") from error
            self._receiver, self._renewed = opened, asyncio.get_running_loop().time()
        return self._receiver

    async def keep(self) -> None:
        """Renew the lock of the session; raises TargetUnavailable if it was lost, and then it is accepted again."""
        receiver, now = self._receiver, asyncio.get_running_loop().time()
        if receiver is None or receiver.session_id is None or now < self._renewed + _RENEWAL_SECONDS:
            return
        try:
            with unavailable(self._place):
                await receiver.management.renew_session_lock(receiver.session_id, TIMEOUT_SECONDS)
        except TargetUnavailable:
            await self.close()
            raise
        self._renewed = now

    async def close(self) -> None:
        """Close the receiver; a session is free again."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            await receiver.__aexit__(None, None, None)


class MovingReceiver(Receiver):
    """Receives from the source, and keeps the session that is moved locked at the target too."""

    def __init__(
        self, place: Place, settings: Mapping[str, str], targets: TargetReceivers, session_id: str | None
    ) -> None:
        """Receive from *place*, or one of its sessions, which *targets* have locked."""
        super().__init__(place, settings, session_id)
        self._targets = targets

    async def renew(self, messages: Sequence[LockedMessage]) -> list[LockedMessage]:
        """Renew the locks that end soon at both ends; return the messages whose lock was lost."""
        await self._targets.keep()
        return await super().renew(messages)


_AT_ONCE = 50
_LOST = (MessageLockLostError, SessionLockLostError)


class DeferredReceiver(MovingReceiver):
    """Receives deferred messages by their sequence numbers: no other receiver gets them."""

    def __init__(
        self,
        place: Place,
        settings: Mapping[str, str],
        targets: TargetReceivers,
        session_id: str | None,
        *,
        wanted: Mapping[str, str | None],
    ) -> None:
        """Receive the messages *wanted*, the session of each by its key."""
        super().__init__(place, settings, targets, session_id)
        self._numbers = [number_in(key) for key, each in wanted.items() if session_id is None or each == session_id]
        self._again: list[int] = []
        self._ids = count(1)

    async def receive(self, count: int, seconds: float) -> list[LockedMessage]:
        """Lock the next messages; one that is locked elsewhere or gone is asked for again later."""
        if not self._numbers:
            self._numbers, self._again = self._again, []
        # One request takes those of one partition only (azure-service-bus 287).
        partition = partition_of(self._numbers[0]) if self._numbers else None
        next_ones = self._numbers[: min(count, _AT_ONCE)]
        some = [*takewhile(lambda number: partition_of(number) == partition, next_ones)]
        self._numbers = self._numbers[len(some) :]
        found: list[LockedMessage] = []
        if some:

            async def lock(numbers: Sequence[int]) -> None:
                with unavailable(self.place, MessageNotFoundError):
                    answer = await self.management.receive_deferred(numbers, self.session_id, TIMEOUT_SECONDS)
                found.extend(self.held(Delivery(next(self._ids), token, content)) for token, content in answer)

            try:
                self._again += await by_halves(some, lock, MessageNotFoundError)
            except BaseException:
                self._again += some
                raise
        if not found:
            # As a receiver that waits for messages.
            await asyncio.sleep(seconds)
        return found

    async def complete(self, messages: Sequence[LockedMessage]) -> list[LockedMessage]:
        """Remove messages from the entity; return those whose lock was lost, which come again."""
        lost: list[LockedMessage] = []
        for some in by_partition(messages, lambda message: number_in(message.key or "")):
            lost += await by_halves(some, self._complete, *_LOST)
        self._again += [number_in(message.key or "") for message in lost]
        return lost

    async def _complete(self, messages: Sequence[LockedMessage]) -> None:
        tokens = [message.delivery.tag for message in messages]
        with unavailable(self.place, *_LOST):
            await self.management.complete(tokens, self.session_id, TIMEOUT_SECONDS)

    async def give_back(self, messages: Iterable[LockedMessage]) -> None:
        """Leave the locks to end: the messages stay deferred."""

    async def renew(self, messages: Sequence[LockedMessage]) -> list[LockedMessage]:
        """Renew the locks that end soon; return the messages whose lock was lost."""
        lost = await super().renew(messages)
        self._again += [number_in(message.key or "") for message in lost]
        return lost


STATE = "state/"
"""What keys of states of sessions begin with."""


@dataclass
class Sessions:
    """The sessions of an entity, locked at the target through *targets*."""

    pair: Pair
    settings: Mapping[str, str]
    ledger: Ledger
    targets: TargetReceivers
    left: dict[str, str] = field(default_factory=dict)
    """Why the state of a session was not moved."""

    @contextlib.asynccontextmanager
    async def opened(self, make: Callable[[str | None], Receiver], session_id: str | None) -> AsyncIterator[Receiver]:
        """Open the receiver that *make* returns; a session is locked at both ends, and has its state at the target."""
        async with make(session_id) as receiver:
            if session_id is not None:
                await self.targets.of(session_id)
                await self._copy_state(receiver, session_id)
            yield receiver

    async def finish(self, with_messages: Iterable[str]) -> int:
        """Move the states of sessions without messages, and clear those that were moved; return how many were."""
        remaining, cleared = {*with_messages}, 0
        async with service_bus_client(self.pair.source.setting, self.settings) as client:
            with unavailable(self.pair.source):
                ids = [session async for session in client.list_queue_sessions(self.pair.source.entity)]
        for session_id in ids:
            if session_id in remaining:
                continue
            try:
                async with Receiver(self.pair.source, self.settings, session_id) as receiver:
                    cleared += await self._clear(receiver, session_id)
            except SessionUnavailable as error:
                self.left[session_id] = str(error)
        return cleared

    async def _clear(self, receiver: Receiver, session_id: str) -> bool:
        with unavailable(receiver.place):
            if await receiver.management.session_state(session_id, TIMEOUT_SECONDS) is None:
                return False
        if self.ledger.state(STATE + session_id) != SENT:
            await self.targets.of(session_id)
            await self._copy_state(receiver, session_id)
        with unavailable(receiver.place):
            await receiver.management.set_session_state(session_id, None, TIMEOUT_SECONDS)
        await self._note(COMPLETED, session_id)
        return True

    async def _copy_state(self, source: Receiver, session_id: str) -> None:
        """Set the state at the target; raises SessionUnavailable if it has another one there."""
        if self.ledger.state(STATE + session_id) == SENT:
            return  # the applications of the target may have changed it since
        target = await self.targets.of(session_id)
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
        await self.ledger.note(state, [STATE + session_id], f"{self.pair.target}: states")
