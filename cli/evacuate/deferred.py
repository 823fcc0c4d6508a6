"""Deferred messages: no receiver gets them, they are asked for by their sequence numbers."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import count

from azure.servicebus.exceptions import MessageLockLostError, MessageNotFoundError, SessionLockLostError

from cli.evacuate.targets import TIMEOUT_SECONDS
from shared.azure.receivers.raw_link import Delivery
from shared.resend.receiver import Receiver, unavailable
from shared.resend.source import LockedMessage

_AT_ONCE = 50


class DeferredSource:
    """Receives deferred messages of an entity or a session; it is a `Source`."""

    removes = True

    def __init__(self, receiver: Receiver, wanted: Mapping[str, str | None]) -> None:
        """Receive the messages *wanted*, the session of each by its key, over the connection of *receiver*."""
        self._receiver = receiver
        session_id = receiver.session_id
        self._numbers = [_number(key) for key, each in wanted.items() if session_id is None or each == session_id]
        self._again: list[int] = []
        self._ids = count(1)

    async def receive(self, count: int, seconds: float) -> list[LockedMessage]:
        """Lock the next messages; one that is locked elsewhere or gone is asked for again later."""
        if not self._numbers:
            self._numbers, self._again = self._again, []
        some, self._numbers = self._numbers[: min(count, _AT_ONCE)], self._numbers[min(count, _AT_ONCE) :]
        found = await self._lock(some) if some else []
        if not found:
            # As a receiver that waits for messages.
            await asyncio.sleep(seconds)
        return found

    async def _lock(self, numbers: Sequence[int]) -> list[LockedMessage]:
        place, session_id = self._receiver.place, self._receiver.session_id
        try:
            with unavailable(place):
                try:
                    answer = await self._receiver.management.receive_deferred(numbers, session_id, TIMEOUT_SECONDS)
                except MessageNotFoundError:
                    if len(numbers) > 1:
                        middle = len(numbers) // 2
                        return [*await self._lock(numbers[:middle]), *await self._lock(numbers[middle:])]
                    self._again += numbers
                    return []
        except BaseException:
            self._again += numbers
            raise
        return [self._receiver.held(Delivery(next(self._ids), token, content)) for token, content in answer]

    async def complete(self, messages: Sequence[LockedMessage]) -> list[LockedMessage]:
        """Remove messages from the entity; return those whose lock was lost, which come again."""
        if not messages:
            return []
        tokens = [each.delivery.tag for each in messages]
        with unavailable(self._receiver.place):
            try:
                await self._receiver.management.complete(tokens, self._receiver.session_id, TIMEOUT_SECONDS)
            except (MessageLockLostError, SessionLockLostError):
                if len(messages) == 1:
                    self._again += [_number(each.key or "") for each in messages]
                    return [*messages]
                middle = len(messages) // 2
                return [*await self.complete(messages[:middle]), *await self.complete(messages[middle:])]
        return []

    async def give_back(self, messages: Iterable[LockedMessage]) -> None:
        """Leave the locks to end: the messages stay deferred."""

    async def renew(self, messages: Sequence[LockedMessage]) -> list[LockedMessage]:
        """Renew the locks that end soon; return the messages whose lock was lost."""
        lost = await self._receiver.renew(messages)
        self._again += [_number(each.key or "") for each in lost]
        return lost

    def may_send(self, message: LockedMessage) -> bool:
        """Return whether the lock lasts long enough."""
        return self._receiver.may_send(message)


def _number(key: str) -> int:
    return int(key.partition("/")[0])
