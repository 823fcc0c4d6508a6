"""The passive sender for asyncio."""

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import timedelta

from busway_clients.aio.sender_link import SenderLink, acquired
from busway_clients.senders.delivery import TIMEOUT, SdkSender
from busway_clients.senders.messages import Messages, SessionOf
from busway_clients.senders.outcome import Delivery, Outcome
from busway_clients.senders.passive import PassiveSending
from busway_clients.senders.roles import RoleStore
from busway_clients.senders.shared_roles import REFRESH, RoleState
from busway_clients.steps import run_async


class PassiveSender:
    """
    Sends to the active namespace, and to a backup when the active one cannot be reached.

    Like `busway_clients.PassiveSender`, with the senders of `azure.servicebus.aio`; may be called from several tasks of
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
        self._links = {name: SenderLink(name, sender) for name, sender in senders.items()}
        self._sending = PassiveSending(self._links, roles, refresh, session_of, monotonic=monotonic)
        self._turn = asyncio.Lock()

    @property
    def session_of(self) -> SessionOf | None:
        """Return what gives the session of a message that has none."""
        return self._sending.session_of

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
        if not await acquired(self._turn, timeout):
            raise self._sending.not_begun(prepared)
        try:
            began = time.monotonic()
            failed: Exception | None = None
            active = self._sending.agreement.present
            if active is not None and len(prepared) == 1 and (link := self._links[active]).is_open:
                # Nearly all sends are this one; what goes wrong with it is the flow's.
                message_id, message = prepared[0]
                try:
                    await link.sender.send_messages(message, timeout=timeout)
                except Exception as error:  # noqa: BLE001 - likewise
                    failed = error
                except BaseException:
                    link.is_open = False
                    raise
                else:
                    return Outcome({active: Delivery((message_id,))})
            return await run_async(self._sending.send(prepared, timeout, began, failed))
        finally:
            self._turn.release()

    async def activate(self, name: str) -> None:
        """Make *name* the active namespace, as after an outage that is over; WrongUse for one that is unknown."""
        async with self._turn:
            await run_async(self._sending.agreement.appoint(name))

    async def look(self) -> RoleState:
        """Read the shared roles now and return them."""
        async with self._turn:
            await run_async(self._sending.agreement.look())
            return self._sending.agreement.state
