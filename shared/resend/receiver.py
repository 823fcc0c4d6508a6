"""
Receiving with locks that this process renews, over the connection that `host` has for raw messages.

Requests use the same connection: the service settles messages of a session only for the one that holds it.
A message that is not wanted is held until the end, because one that is given back comes again before all others.
"""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple, Self

from azure.core.exceptions import AzureError
from azure.servicebus.exceptions import MessageLockLostError, SessionLockLostError

from shared.amqp import performatives
from shared.clock import Clock, SystemClock
from shared.ends.azure_amqp.raw_link import Delivery, LinkClosed, RawLink
from shared.ends.service_bus.clients import service_bus_client
from shared.ends.service_bus.connection import ServiceBusConnection
from shared.ends.service_bus.management import ManagementConnection
from shared.errors import LockLost, TargetRefused, TargetUnavailable
from shared.resend.letters import Letter
from shared.resend.peek import keys_in
from shared.resend.places import Place
from shared.resend.source import LockedMessage, SessionUnavailable, Source, Supply

_CANNOT_BE_LOCKED = "com.microsoft:session-cannot-be-locked"
_SESSION_LOCKED = (_CANNOT_BE_LOCKED, "com.microsoft:timeout")
# A session is not free at once when its receiver has closed (Azure/azure-sdk-for-go 17325).
_HANDOVER_WAITS = (0.2, 0.5, 1.0, 2.0)

# 8 KB in a request: it must fit the frames of the service.
_TOKENS_AT_ONCE = 500
_TIMEOUT_SECONDS = 30.0
_SESSION_SECONDS = 5.0
# Renewed when less than this part of a lock is left; nothing is sent with less than the second part left.
_RENEW_BELOW, _SEND_ABOVE = 0.6, 0.3
_SHORTEST_LOCK = 1.0


class _Span(NamedTuple):
    """When a lock ends, a time of the event loop, and the seconds that it has until then."""

    until: float
    duration: float


class Receiver(Source):
    """Receives from one queue, subscription or dead-letter queue, or from one session of it."""

    removes = True

    def __init__(
        self,
        place: Place,
        settings: Mapping[str, str],
        session_id: str | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        """Receive from *place*; with *session_id*, only from that session, which `__aenter__` locks."""
        self.place = place
        self._settings = settings
        self.session_id = session_id
        self._clock = clock or SystemClock()
        self._opened = contextlib.AsyncExitStack()
        self._connection: ServiceBusConnection
        self._link: RawLink
        # When the lock of the session ends, in milliseconds since 1970 UTC.
        self._session_end: int | None = None
        self._session = _Span(math.inf, 1.0)
        self.management: ManagementConnection
        """The node for other requests about the entity; one at a time."""

    async def __aenter__(self) -> Self:
        """Open the link; raises TargetUnavailable, TargetRefused, and SessionUnavailable."""
        async with contextlib.AsyncExitStack() as stack:
            entity = {"queue_name": self.place.entity}
            connection = self.place.connection(self._settings)
            has_session = self.session_id is not None
            self._connection = await ServiceBusConnection.open(connection, entity, sessions=has_session)
            stack.push_async_callback(self._connection.close)
            self._link = await self._attached()
            self.management = self._connection.management(self._link)
            if self._link.locked_until is not None:
                self._session_end = round(datetime.fromisoformat(self._link.locked_until).timestamp() * 1000)
                self._session = self._span(self._session_end)
            self._opened = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connection."""
        with contextlib.suppress(TargetUnavailable, TargetRefused, AzureError, OSError):
            await self._connection.raw.detach(self._link)
        await self._opened.aclose()

    async def _attached(self) -> RawLink:
        has_session = self.session_id is not None
        waits = iter(_HANDOVER_WAITS)
        while True:
            try:
                return await self._connection.attach(
                    session_wait=_SESSION_SECONDS if has_session else None, drains=True, session_id=self.session_id
                )
            except LinkClosed as error:
                if not has_session or error.condition not in _SESSION_LOCKED:
                    raise
                wait = next(waits, None) if error.condition == _CANNOT_BE_LOCKED else None
                if wait is None:
                    raise SessionUnavailable("its session is locked by another receiver") from error
            await asyncio.sleep(wait)

    async def dead_letter(self, messages: Sequence[LockedMessage], reason: str | None, description: str | None) -> None:
        """Move messages to the dead-letter queue; raises TargetUnavailable, also if a lock was lost."""
        tokens = [message.delivery.tag for message in messages]
        with unavailable(self.place):
            await self.management.dead_letter(tokens, self.session_id, reason, description, _TIMEOUT_SECONDS)

    async def defer(self, messages: Sequence[LockedMessage]) -> None:
        """Defer messages; raises TargetUnavailable, also if a lock was lost."""
        tokens = [message.delivery.tag for message in messages]
        with unavailable(self.place):
            await self.management.defer(tokens, self.session_id, _TIMEOUT_SECONDS)

    async def receive(self, count: int, seconds: float) -> list[LockedMessage]:
        """Return up to *count* messages, none if nothing comes for *seconds*; raises TargetUnavailable."""
        return [self.held(delivery) for delivery in await self._link.receive(count, seconds)]

    async def complete(self, messages: Sequence[LockedMessage]) -> list[LockedMessage]:
        """Remove messages from the entity; return those whose lock was lost, which come again."""
        if not messages:
            return []
        failures = await self._connection.raw.settle(
            self._link, [message.delivery for message in messages], performatives.ACCEPTED
        )
        return [message for message in messages if message.delivery.delivery_id in failures]

    async def give_back(self, messages: Iterable[LockedMessage]) -> None:
        """Make messages available to other receivers again, where they were; errors end with the locks anyway."""
        waiting = [message.delivery for message in messages]
        with contextlib.suppress(TargetUnavailable, TargetRefused, OSError):
            if self.place.is_dead_letter_queue:
                # Azure puts what is released behind all others. Deliveries from a dead-letter queue have no limit.
                for start in range(0, len(waiting), _TOKENS_AT_ONCE):
                    some = waiting[start : start + _TOKENS_AT_ONCE]
                    await self._connection.raw.settle(self._link, some, performatives.MODIFIED)
            else:
                await self._connection.raw.release(self._link, waiting)

    async def renew(self, messages: Sequence[LockedMessage]) -> list[LockedMessage]:
        """
        Renew the locks that end soon; return the messages whose lock was lost. Raises TargetUnavailable.

        That of a session is renewed also while it has given no message.
        """
        if self.session_id is not None:
            left = (self._session.until - asyncio.get_running_loop().time()) / self._session.duration
            return await self._renew_session(messages) if left < _RENEW_BELOW else []
        due = [message for message in messages if message.left < _RENEW_BELOW]
        lost: list[LockedMessage] = []
        for start in range(0, len(due), _TOKENS_AT_ONCE):
            lost += await by_halves(due[start : start + _TOKENS_AT_ONCE], self._renew_some, MessageLockLostError)
        return lost

    def may_send(self, message: LockedMessage) -> bool:
        """Return whether the lock lasts long enough to send the message and complete it."""
        return message.left > _SEND_ABOVE

    async def _renew_some(self, messages: Sequence[LockedMessage]) -> None:
        tokens = [message.delivery.tag for message in messages]
        with unavailable(self.place, MessageLockLostError):
            self._extend(messages, await self.management.renew_locks(tokens, _TIMEOUT_SECONDS))

    async def _renew_session(self, messages: Sequence[LockedMessage]) -> list[LockedMessage]:
        try:
            end = await self.management.renew_session_lock(self.session_id or "", _TIMEOUT_SECONDS)
        except SessionLockLostError:
            return [*messages]
        except (AzureError, OSError) as error:
            raise LockLost(f"{self.place}: the session cannot be renewed, {type(error).__name__}") from error
        self._session_end, self._session = end, self._span(end)
        self._extend(messages, [end] * len(messages))
        return []

    def _extend(self, messages: Sequence[LockedMessage], ends: Sequence[int]) -> None:
        for message, end in zip(messages, ends, strict=True):
            message.until, message.duration = self._span(end)

    def _span(self, end: int | None) -> _Span:
        # A clock that is ahead of the service's makes locks look shorter: they are renewed earlier, which is safe.
        duration = max(_SHORTEST_LOCK, 0.0 if end is None else end / 1000 - self._clock.now().timestamp())
        return _Span(asyncio.get_running_loop().time() + duration, duration)

    def held(self, delivery: Delivery) -> LockedMessage:
        """Return a message with its lock, or in a session with that of the session."""
        letter = Letter.at(self.place, delivery.payload)
        end = self._session_end
        if end is None and letter.message is not None:
            end = letter.message.arrival.locked_until
        return LockedMessage(letter.key, delivery, letter, *self._span(end))


def supply_of(place: Place, settings: Mapping[str, str], clock: Clock | None = None) -> Supply:
    """Return how a run gets at the messages of a queue, subscription or dead-letter queue."""
    by_session = False if place.is_dead_letter_queue else None
    return Supply(partial(Receiver, place, settings, clock=clock), by_session, partial(keys_in, place, settings))


@contextlib.contextmanager
def unavailable(place: Place, *expected: type[Exception]) -> Iterator[None]:
    """Raise TargetUnavailable for an error of the SDK in a request to *place*, but not for *expected* ones."""
    try:
        yield
    except expected:
        raise
    except (AzureError, OSError) as error:
        raise TargetUnavailable(f"{place}: a request failed, {type(error).__name__}") from error


@contextlib.asynccontextmanager
async def management_of(place: Place, settings: Mapping[str, str]) -> AsyncIterator[ManagementConnection]:
    """Give a connection for requests to *place*, which is opened at the first one."""
    async with service_bus_client(place.setting, settings) as client:
        connection = ManagementConnection.to(client, place.entity)
        try:
            yield connection
        finally:
            await connection.close()


async def by_halves[T](
    items: Sequence[T], attempt: Callable[[Sequence[T]], Awaitable[None]], *errors: type[Exception]
) -> list[T]:
    """
    Make an *attempt* with all *items*, which one of them can make fail with one of *errors*; return those that do.

    It is made again with each half, down to single items.
    """
    try:
        await attempt(items)
    except errors:
        if len(items) == 1:
            return [*items]
        middle = len(items) // 2
        return [
            *await by_halves(items[:middle], attempt, *errors),
            *await by_halves(items[middle:], attempt, *errors),
        ]
    return []
