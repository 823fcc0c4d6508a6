"""A receiver for asyncio that takes messages from the namespace which a watch names."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSession
from azure.servicebus.exceptions import MessageLockLostError

from busway_clients.endpoints.aio.watch import Watched
from busway_clients.endpoints.endpoint import Endpoint
from busway_clients.endpoints.link import (
    DRAIN_SECONDS,
    LEFT_BEHIND,
    LOOK_SECONDS,
    OPEN_SECONDS,
    RETRY_SECONDS,
    WAIT_SECONDS,
    HandedOut,
)
from busway_clients.endpoints.moorings import Moorings, Step
from busway_clients.endpoints.watch import LOGGER
from busway_clients.senders.meaning import is_unavailable, told


@dataclass(frozen=True)
class _Link:
    endpoint: Endpoint
    receiver: ServiceBusReceiver
    ends: contextlib.AsyncExitStack
    handed_out: HandedOut = field(default_factory=HandedOut)

    @property
    def session(self) -> ServiceBusSession | None:
        # The SDK says that there always is one; of an entity without sessions there is none.
        return getattr(self.receiver, "session", None)

    @property
    def held(self) -> int:
        session = self.session
        return self.handed_out.held(None if session is None else session.locked_until_utc)


class FollowingReceiver:
    """
    A ServiceBusReceiver that moves when the watch names another namespace; ends with its context.

    Before it moves it takes nothing more, and waits until what it has handed out is settled, where it came from.
    Messages may be settled from any task; `receive_messages` is for one at a time.
    """

    def __init__(
        self,
        watch: Watched,
        connect: Callable[[Endpoint], ServiceBusClient],
        open_receiver: Callable[[ServiceBusClient], ServiceBusReceiver],
        *,
        drain_seconds: float = DRAIN_SECONDS,
        open_seconds: float = OPEN_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Follow *watch*, with a client of each namespace from *connect* and a receiver of it from *open_receiver*.

        What is not settled within *drain_seconds* of the change, or when its lock ends, is left behind: it is delivered
        again there. An endpoint that cannot be opened within *open_seconds* is left alone for *retry_seconds*, and the
        receiver stays.
        """
        self._watch = watch
        self._connect = connect
        self._open_receiver = open_receiver
        self._open_seconds = open_seconds
        self._monotonic = monotonic
        self._moorings = Moorings(drain_seconds, retry_seconds)
        self._receiving = asyncio.Lock()
        self._settled = asyncio.Condition()
        self._link: _Link | None = None

    @property
    def endpoint(self) -> Endpoint | None:
        """Where it receives from, None before the first call."""
        return self._moorings.present

    @property
    def session(self) -> ServiceBusSession | None:
        """The session of the present link, None where the entity has none."""
        return None if self._link is None else self._link.session

    async def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """
        Return messages as a ServiceBusReceiver does; none while those from before a change are not settled.

        Raises what the SDK raises, if the watch names no other namespace then.
        """
        end = self._monotonic() + (WAIT_SECONDS if max_wait_time is None else max_wait_time)
        async with self._receiving:
            wanted = await self._watch.endpoints()
            while True:
                left = end - self._monotonic()
                link = await self._followed(wanted, left)
                if link is None:
                    return []
                left = max(end - self._monotonic(), 0.01)
                try:
                    messages = await link.receiver.receive_messages(max_message_count, min(left, LOOK_SECONDS))
                except Exception as error:
                    if not is_unavailable(error):
                        raise
                    wanted = await self._watch.consult()
                    if wanted[0].namespace == link.endpoint.namespace:
                        raise
                    LOGGER.warning("Receiving from %s failed: %s", link.endpoint, told(error))
                    if await self._followed(wanted, end - self._monotonic()) is link:
                        raise
                    continue
                if messages or self._monotonic() >= end:
                    async with self._settled:
                        link.handed_out.add(messages)
                    return messages
                wanted = await self._watch.endpoints()

    async def complete_message(self, message: ServiceBusReceivedMessage) -> None:
        """Complete *message* where it came from; MessageLockLostError if that was left behind."""
        async with self._settling(message) as receiver:
            await receiver.complete_message(message)

    async def abandon_message(self, message: ServiceBusReceivedMessage) -> None:
        """Abandon *message* where it came from; MessageLockLostError if that was left behind."""
        async with self._settling(message) as receiver:
            await receiver.abandon_message(message)

    async def defer_message(self, message: ServiceBusReceivedMessage) -> None:
        """
        Defer *message* where it came from; MessageLockLostError if that was left behind.

        It is received again with a client of that namespace: elsewhere its sequence number is another message's.
        """
        async with self._settling(message) as receiver:
            await receiver.defer_message(message)

    async def dead_letter_message(
        self, message: ServiceBusReceivedMessage, reason: str | None = None, error_description: str | None = None
    ) -> None:
        """Dead-letter *message* where it came from; MessageLockLostError if that was left behind."""
        async with self._settling(message) as receiver:
            await receiver.dead_letter_message(message, reason, error_description)

    async def renew_message_lock(self, message: ServiceBusReceivedMessage, **options: Any) -> Any:  # noqa: ANN401 - the SDK's
        """Renew the lock of *message*; MessageLockLostError if its link was left behind."""
        return await (await self._origin(message)).receiver.renew_message_lock(message, **options)

    async def release(self) -> None:
        """Close the link; the next `receive_messages` opens another: with NEXT_AVAILABLE_SESSION, another session."""
        async with self._receiving:
            await self._leave(None)
            self._moorings.present = None

    async def close(self) -> None:
        """Close; what is not settled is delivered again."""
        await self.release()

    async def __aenter__(self) -> Self:
        """Open nothing yet: the first call does."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    async def _followed(self, wanted: tuple[Endpoint, ...], patience: float) -> _Link | None:
        """Return the link to receive on, None if *patience* seconds were not enough to settle what is held."""
        end = self._monotonic() + patience
        async with self._settled:
            while self._link is not None:
                step = self._moorings.step(wanted, self._link.held, self._monotonic())
                if step is Step.STAY:
                    return self._link
                if step is Step.MOVE:
                    break
                left = end - self._monotonic()
                if left <= 0:
                    return None
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left, self._moorings.patience(self._monotonic()))):
                        await self._settled.wait()
        failure: Exception | None = None
        for endpoint in self._moorings.choices(wanted):
            try:
                async with asyncio.timeout(self._open_seconds):
                    link = await self._opened(endpoint)
            except Exception as error:  # noqa: BLE001 - the present one is kept, whatever is wrong
                failure = error
                # Where there is nothing else, it is raised; it may mean no more than that no session is there to take.
                if self._link is not None or endpoint != wanted[-1]:
                    LOGGER.error("%s cannot be opened: %s", endpoint, told(error))
                continue
            self._moorings.moved(endpoint, wanted, self._monotonic())
            await self._leave(link)
            return link
        if self._link is None:
            assert failure is not None  # noqa: S101 - a watch names one endpoint at least
            raise failure
        self._moorings.refused(wanted, self._monotonic())
        return self._link

    async def _opened(self, endpoint: Endpoint) -> _Link:
        async with contextlib.AsyncExitStack() as ends:
            client = await ends.enter_async_context(self._connect(endpoint))
            receiver = await ends.enter_async_context(self._open_receiver(client))
            return _Link(endpoint, receiver, ends.pop_all())

    async def _leave(self, following: _Link | None) -> None:
        async with self._settled:
            before, self._link = self._link, following
        if before is not None:
            if before.held:
                LOGGER.warning(
                    "%s messages of %s were left unsettled: it delivers them again.", before.held, before.endpoint
                )
            await before.ends.aclose()

    @contextlib.asynccontextmanager
    async def _settling(self, message: ServiceBusReceivedMessage) -> AsyncIterator[ServiceBusReceiver]:
        link = await self._origin(message)
        try:
            yield link.receiver
        except Exception:
            async with self._settled:
                link.handed_out.failed(message)
                self._settled.notify_all()
            raise
        async with self._settled:
            link.handed_out.settled(message)
            self._settled.notify_all()

    async def _origin(self, message: ServiceBusReceivedMessage) -> _Link:
        async with self._settled:
            link = self._link
            if link is None or message not in link.handed_out:
                raise MessageLockLostError(message=LEFT_BEHIND)
        return link
