"""The active sender for asyncio."""

import asyncio
from collections.abc import Collection, Mapping
from datetime import timedelta

from busway_clients.aio.sender_link import SenderLink
from busway_clients.senders.active import DELAY, ActiveSending, Now, Success, utc_now
from busway_clients.senders.delivery import TIMEOUT, SdkSender, end_of
from busway_clients.senders.messages import Messages, SessionOf
from busway_clients.senders.outcome import Outcome


class ActiveSender:
    """
    Sends each message to all namespaces at once, with the same message and session ids.

    Like `busway_clients.ActiveSender`, with the senders of `azure.servicebus.aio`; may be called from several tasks of
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
        """Send by *senders*, named by their namespaces; as for `busway_clients.ActiveSender`."""
        self._sending = ActiveSending(senders, success, delay, session_of=session_of, now=now)
        self._links = {name: SenderLink(name, sender) for name, sender in senders.items()}

    @property
    def session_of(self) -> SessionOf | None:
        """Return what gives the session of a message that has none."""
        return self._sending.session_of

    async def send(
        self,
        messages: Messages,
        *,
        key: str | None = None,
        to: Collection[str] | None = None,
        timeout: float | None = TIMEOUT,  # noqa: ASYNC109 - the SDK's own, for each of its calls
    ) -> Outcome:
        """Send one message or several, and return which namespace accepted which, like the synchronous sender."""
        prepared = self._sending.prepared(messages, key, timeout)
        names = self._sending.names(to) if prepared else []
        if not names:
            return Outcome({})
        until = end_of(timeout)
        copies = [self._sending.copies(name, prepared) for name in names]
        deliveries = await asyncio.gather(
            *(self._links[name].send(each, until) for name, each in zip(names, copies, strict=True))
        )
        return self._sending.judged(Outcome(dict(zip(names, deliveries, strict=True))))
