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
    Sends with an active or passive sender, and keeps messages in an outbox that no namespace accepts in an outage.

    Like `busway_clients.DurableSender`, with a sender of `busway_clients.aio`. The outbox is the same class; it is
    called in threads. Safe to call from several tasks of one event loop.
    """

    def __init__(self, sender: Sender, outbox: Outbox, *, session_of: SessionOf | None = None) -> None:
        """Send with *sender* and keep messages in *outbox*; the caller closes both."""
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
        timeout: float | None = TIMEOUT,  # noqa: ASYNC109 - passed to the SDK's calls
    ) -> Accepted:
        """Send one message or several; unsent messages are on disk when this returns."""
        return await run_async(self._sending.send(messages, key, timeout))

    async def drain(
        self,
        *,
        timeout: float | None = TIMEOUT,  # noqa: ASYNC109 - passed to the SDK's calls
    ) -> Drained:
        """Send the messages of the outbox, in order per session, until none is left or no namespace accepts more."""
        async with self._draining:
            return await run_async(self._sending.drain(timeout))

    async def keep_draining(self, *, pause: float = PAUSE_SECONDS) -> None:
        """Drain repeatedly until cancelled; run it in its own task. Units: pause in seconds."""
        while True:
            try:
                self._sending.log(await self.drain())
            except StoreUnavailable as error:
                self._sending.log(error)
            await asyncio.sleep(pause)
