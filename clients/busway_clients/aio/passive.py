"""The passive sender for asyncio."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from busway_clients.senders.agreement import REFRESH, RoleState
from busway_clients.senders.delivery import TIMEOUT, SdkSender
from busway_clients.senders.messages import Identified, Messages, SessionOf
from busway_clients.senders.outcome import Delivery, Outcome
from busway_clients.senders.passive import PassiveSending
from busway_clients.senders.roles import RoleStore
from busway_clients.steps import run_async


class PassiveSender:
    """
    Sends to the active namespace, and to a backup when the active one cannot be reached.

    As `busway_clients.PassiveSender`, with the senders of `azure.servicebus.aio`; may be called from several tasks of
    one event loop.
    """

    def __init__(
        self,
        senders: Mapping[str, SdkSender],
        *,
        roles: RoleStore | None = None,
        refresh: timedelta = REFRESH,
        session_of: SessionOf | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Send by *senders*, named by their namespaces, at first to the first; as the synchronous one does."""
        self._sending = PassiveSending(senders, self._deliver, roles, refresh, session_of, monotonic=monotonic)
        self._turn = asyncio.Lock()

    @property
    def state(self) -> RoleState:
        """Return the roles as they were last seen."""
        return self._sending.agreement.state

    async def send(
        self,
        messages: Messages,
        *,
        key: str | None = None,
        timeout: float | None = TIMEOUT,  # noqa: ASYNC109 - the SDK's own, for each of its calls
    ) -> Outcome:
        """Send one message or several, and return which namespace took which; as the synchronous sender."""
        prepared = self._sending.prepared(messages, key, timeout)
        if not prepared:
            return Outcome({})
        async with self._turn:
            return await run_async(self._sending.send(prepared, timeout))

    async def _deliver(
        self,
        name: str,
        messages: Sequence[Identified],
        timeout: float | None,  # noqa: ASYNC109 - likewise
    ) -> Delivery:
        return await run_async(self._sending.delivery(name, messages, timeout))

    async def activate(self, name: str) -> None:
        """Make *name* the active namespace, as after an outage that is over; WrongUse for one that is unknown."""
        async with self._turn:
            await run_async(self._sending.agreement.appoint(name))

    async def look(self) -> RoleState:
        """Read the shared roles now and return them."""
        async with self._turn:
            await run_async(self._sending.agreement.look())
            return self._sending.agreement.state
