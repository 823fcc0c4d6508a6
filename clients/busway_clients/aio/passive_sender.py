"""Passive replication: one active namespace, and backups for when it is unavailable (Microsoft Learn, outages)."""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from azure.servicebus.aio import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from busway_clients.aio.role_client import REFRESH, RoleClient
from busway_clients.aio.sender_link import SenderLink
from busway_clients.concurrency.tasks import is_acquired_within
from busway_clients.errors import WrongUse
from busway_clients.senders.delivery import (
    TIMEOUT,
    deadline_of,
    failed_delivery,
    prepare,
    send_failed,
)
from busway_clients.senders.error_kinds import is_unavailable
from busway_clients.senders.messages import Messages, OutgoingMessage, SessionOf
from busway_clients.senders.outcome import Delivery, Outcome
from busway_clients.senders.roles import RoleStore


class PassiveSender(RoleClient):
    """
    Sends to the active namespace, and to a backup when the active one is unavailable.

    A link that was open and fails is reopened once before its namespace counts as unavailable. If a backup accepts the
    messages, the two swap roles. If none accepts, the roles stay as they are and SendFailed has each error.
    Errors that do not mean unavailability (authorization, size, quota, throttling, a missing entity) cause no switch.
    The senders are the SDK's; the caller closes them. Safe to use concurrently.
    """

    def __init__(
        self,
        senders: Mapping[str, ServiceBusSender],
        *,
        roles: RoleStore | None = None,
        refresh: timedelta = REFRESH,
        session_of: SessionOf | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Send with *senders*, keyed by namespace name; the first is active at the start, the others are backups.

        *roles* is the store in which processes agree on the active namespace, by default the memory of this process;
        it is read every *refresh*. While it is unavailable, the last known roles are used. *session_of* returns the
        session id for a message without one. Units: monotonic in seconds.
        """
        if not senders:
            raise WrongUse("senders of a passive sender: got none, expected an active namespace and its backups")
        self.session_of = session_of
        self._links = {name: SenderLink(name, sender) for name, sender in senders.items()}
        super().__init__([*senders], roles, refresh, monotonic)

    async def send(
        self,
        messages: Messages,
        *,
        key: str | None = None,
        timeout: float | None = TIMEOUT,  # noqa: ASYNC109 - passed to the SDK's calls
    ) -> Outcome:
        """
        Send one message or several, and return which namespace accepted which.

        A message without an id gets one, which is stored on the object; with *key*, all ids are derived from the key
        and the content. Units: timeout in seconds, for each namespace, and for waiting behind other sends. Raises
        SendFailed, which has the outcome; WrongUse if nothing was sent.
        """
        prepared = prepare(messages, key, self.session_of, timeout)
        if not prepared:
            return Outcome({})
        if not await is_acquired_within(self._turn, timeout):
            error = OperationTimeoutError(message="Earlier sends did not end in time; this one was not started.")
            raise _failed({self._roles.active: failed_delivery(prepared, error)})
        try:
            await self._refresh()
            return await self._send(prepared, timeout)
        finally:
            self._turn.release()

    async def _send(self, messages: Sequence[OutgoingMessage], seconds: float | None) -> Outcome:
        """Send to the active namespace; if it is unavailable, send what it has not accepted to a backup."""
        deliveries: dict[str, Delivery] = {}
        active = self._roles.active
        for name in self._roles.order:
            delivery = deliveries[name] = await self._links[name].send(messages, deadline_of(seconds))
            if delivery.error is None:
                if name != active:
                    await self._swap(name)
                return Outcome(deliveries)
            if name == active and not is_unavailable(delivery.error):
                break
            messages = messages[len(delivery.accepted) :]
        raise _failed(deliveries)


def _failed(deliveries: Mapping[str, Delivery]) -> Exception:
    outcome = Outcome(deliveries)
    expected = "all messages in the active namespace, or in a backup during an outage"
    return send_failed(expected, outcome, outcome.accepted_nowhere)
