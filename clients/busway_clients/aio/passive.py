"""The passive sender for asyncio."""

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import timedelta

from busway_clients.aio.sender_link import SenderLink, acquire_within
from busway_clients.senders.delivery import TIMEOUT, SdkSender
from busway_clients.senders.messages import Messages, SessionOf
from busway_clients.senders.outcome import Delivery, Outcome
from busway_clients.senders.passive import PassiveSending
from busway_clients.senders.roles import RoleStore
from busway_clients.senders.shared_roles import REFRESH, RoleState
from busway_clients.steps import run_async


class PassiveSender:
    """
    Sends to the active namespace, and to a backup when the active one is unavailable.

    Like `busway_clients.PassiveSender`, with the senders of `azure.servicebus.aio`; safe to call from several tasks of
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
        """Send with *senders*, keyed by namespace name; the arguments are those of `busway_clients.PassiveSender`."""
        self._links = {name: SenderLink(name, sender) for name, sender in senders.items()}
        self._sending = PassiveSending(self._links, roles, refresh, session_of, monotonic=monotonic)
        self._lock = asyncio.Lock()

    @property
    def session_of(self) -> SessionOf | None:
        """Return the function that gives a session id to a message without one."""
        return self._sending.session_of

    @property
    def state(self) -> RoleState:
        """Return the last known roles."""
        return self._sending.shared_roles.state

    async def send(
        self,
        messages: Messages,
        *,
        key: str | None = None,
        timeout: float | None = TIMEOUT,  # noqa: ASYNC109 - passed to the SDK's calls
    ) -> Outcome:
        """Send one message or several, and return which namespace accepted which, like the synchronous sender."""
        with_ids = self._sending.with_ids(messages, key, timeout)
        if not with_ids:
            return Outcome({})
        if not await acquire_within(self._lock, timeout):
            raise self._sending.not_started(with_ids)
        try:
            began = time.monotonic()
            failed: Exception | None = None
            active = self._sending.shared_roles.present
            if active is not None and len(with_ids) == 1 and (link := self._links[active]).is_open:
                # The fast path of nearly all sends; the steps handle its errors.
                message_id, message = with_ids[0]
                try:
                    await link.sender.send_messages(message, timeout=timeout)
                except Exception as error:  # noqa: BLE001 - the steps classify it
                    failed = error
                except BaseException:
                    link.is_open = False
                    raise
                else:
                    return Outcome({active: Delivery((message_id,))})
            return await run_async(self._sending.send(with_ids, timeout, began, failed))
        finally:
            self._lock.release()

    async def activate(self, name: str) -> None:
        """Make *name* the active namespace, for example after an outage; raises WrongUse for an unknown name."""
        async with self._lock:
            await run_async(self._sending.shared_roles.make_active(name))

    async def look(self) -> RoleState:
        """Read the shared roles now and return them."""
        async with self._lock:
            await run_async(self._sending.shared_roles.look())
            return self._sending.shared_roles.state
