"""The durable sender for asyncio."""

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from busway_clients.errors import StoreUnavailable
from busway_clients.senders.delivery import TIMEOUT
from busway_clients.senders.durable import PAUSE_SECONDS, Accepted, Drained, DurableSending
from busway_clients.senders.messages import Messages, SessionOf
from busway_clients.senders.outbox import Outbox
from busway_clients.senders.outcome import Outcome
from busway_clients.steps import run_async


class Sender(Protocol):
    """An active or a passive sender."""

    def send(self, messages: Messages, *, timeout: float | None = TIMEOUT) -> Awaitable[Outcome]:
        """Send, or raise SendFailed."""


class DurableSender:
    """
    Sends by an active or a passive sender, and keeps in an outbox what no namespace takes during an outage.

    Like `busway_clients.DurableSender`, with a sender of `busway_clients.aio`; the outbox is the same one, and is asked
    in threads. May be called from several tasks of one event loop.
    """

    def __init__(self, sender: Sender, outbox: Outbox, *, session_of: SessionOf | None = None) -> None:
        """Send by *sender*, and keep in *outbox*; both stay open: the caller closes them."""
        self._sending = DurableSending(
            lambda messages, timeout: sender.send(messages, timeout=timeout),
            outbox,
            session_of or getattr(sender, "session_of", None),
        )
        self._draining = asyncio.Lock()

    async def send(
        self,
        messages: Messages,
        *,
        key: str | None = None,
        timeout: float | None = TIMEOUT,  # noqa: ASYNC109 - the SDK's own, for each of its calls
    ) -> Accepted:
        """Send one message or several; what could not be sent is on the disk when this returns."""
        return await run_async(self._sending.send(messages, key, timeout))

    async def drain(
        self,
        *,
        timeout: float | None = TIMEOUT,  # noqa: ASYNC109 - likewise
    ) -> Drained:
        """Send what waits, in order per session, until nothing may be sent or no namespace takes more."""
        async with self._draining:
            return await run_async(self._sending.drain(timeout))

    async def keep_draining(self, *, pause: float = PAUSE_SECONDS) -> None:
        """Drain again and again until cancelled; meant for a task of its own. Units: pause in seconds."""
        while True:
            try:
                self._sending.log(await self.drain())
            except StoreUnavailable as error:
                self._sending.log(error)
            await asyncio.sleep(pause)
