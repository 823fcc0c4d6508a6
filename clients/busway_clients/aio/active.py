"""The active sender for asyncio."""

import asyncio
from collections.abc import Collection, Mapping
from datetime import timedelta

from busway_clients.aio.sender_link import SenderLink
from busway_clients.senders.active import DELAY, ActiveSending, Now, Success, utc_now
from busway_clients.senders.delivery import TIMEOUT, SdkSender, deadline_of
from busway_clients.senders.messages import Messages, SessionOf
from busway_clients.senders.outcome import Outcome


class ActiveSender:
    """
    Sends each message to all namespaces at once, with the same message and session ids.

    Like `busway_clients.ActiveSender`, with the senders of `azure.servicebus.aio`; safe to call from several tasks of
    one event loop.
    """

    def __init__(
        self,
        senders: Mapping[str, SdkSender],
        *,
        success: Success = "any",
        delay: timedelta = DELAY,
        session_of: SessionOf | None = None,
        now: Now = utc_now,
    ) -> None:
        """Send with *senders*, keyed by namespace name; the arguments are those of `busway_clients.ActiveSender`."""
        self._sending = ActiveSending(senders, success, delay, session_of=session_of, now=now)
        self._links = {name: SenderLink(name, sender) for name, sender in senders.items()}

    @property
    def session_of(self) -> SessionOf | None:
        """Return the function that gives a session id to a message without one."""
        return self._sending.session_of

    async def send(
        self,
        messages: Messages,
        *,
        key: str | None = None,
        to: Collection[str] | None = None,
        timeout: float | None = TIMEOUT,  # noqa: ASYNC109 - passed to the SDK's calls
    ) -> Outcome:
        """Send one message or several, and return which namespace accepted which, like the synchronous sender."""
        with_ids = self._sending.with_ids(messages, key, timeout)
        names = self._sending.names(to) if with_ids else []
        if not names:
            return Outcome({})
        until = deadline_of(timeout)
        copies = [self._sending.copies(name, with_ids) for name in names]
        deliveries = await asyncio.gather(
            *(self._links[name].send(each, until) for name, each in zip(names, copies, strict=True))
        )
        return self._sending.require_success(Outcome(dict(zip(names, deliveries, strict=True))))
