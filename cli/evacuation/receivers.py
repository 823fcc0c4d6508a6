"""
The receivers of an evacuation.

Those of the target set messages aside there, and hold sessions while they are moved.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import count, takewhile

from azure.servicebus.exceptions import MessageLockLostError, MessageNotFoundError, SessionLockLostError

from shared.clock import Clock
from shared.ends.azure_amqp.raw_link import Delivery
from shared.errors import TargetUnavailable
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
        """Receive from *place*."""
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
        some = _of_one_partition(self._numbers[: min(count, _AT_ONCE)])
        self._numbers = self._numbers[len(some) :]
        found: list[LockedMessage] = []
        if some:
            try:
                self._again += await by_halves(some, partial(self._lock, found), MessageNotFoundError)
            except BaseException:
                self._again += some
                raise
        if not found:
            # As a receiver that waits for messages.
            await asyncio.sleep(seconds)
        return found

    async def _lock(self, found: list[LockedMessage], numbers: Sequence[int]) -> None:
        with unavailable(self.place, MessageNotFoundError):
            answer = await self.management.receive_deferred(numbers, self.session_id, TIMEOUT_SECONDS)
        found += [self.held(Delivery(next(self._ids), token, content)) for token, content in answer]

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


def _of_one_partition(numbers: Sequence[int]) -> list[int]:
    """Return the first of *numbers*: one request takes those of one partition only (azure-service-bus 287)."""
    return [*takewhile(lambda number: partition_of(number) == partition_of(numbers[0]), numbers)]
