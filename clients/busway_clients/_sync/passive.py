# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
"""Passive replication: one active namespace, and backups for when it is unavailable (Microsoft Learn, outages)."""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import Self

from azure.servicebus.exceptions import OperationTimeoutError

from busway_clients._sync.sender_link import SenderLink
from busway_clients._sync.shared_roles import REFRESH, SharedRoles
from busway_clients.concurrency.threads import Lock, is_acquired_within
from busway_clients.errors import WrongUse
from busway_clients.senders.delivery import TIMEOUT, SdkSender, deadline_of, failed_delivery, invalid_timeout
from busway_clients.senders.error_kinds import is_unavailable
from busway_clients.senders.failure import send_failed
from busway_clients.senders.messages import Messages, OutgoingMessage, SessionOf, with_ids
from busway_clients.senders.outcome import Delivery, Outcome
from busway_clients.senders.roles import RoleState, RoleStore


class PassiveSender:
    """
    Sends to the active namespace, and to a backup when the active one is unavailable.

    A link that was open and fails is reopened once before its namespace counts as unavailable. If a backup accepts the
    messages, the two swap roles. If none accepts, the roles stay as they are and SendFailed has each error.
    Errors that do not mean unavailability (authorization, size, quota, throttling, a missing entity) cause no switch.
    The senders are the SDK's; the caller closes them. Safe to use concurrently.
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
        self._roles = SharedRoles(tuple(senders), roles, refresh, monotonic=monotonic)
        self._turn = Lock()

    @property
    def state(self) -> RoleState:
        """Return the last known roles."""
        return self._roles.state

    def send(
        self,
        messages: Messages,
        *,
        key: str | None = None,
        timeout: float | None = TIMEOUT,
    ) -> Outcome:
        """
        Send one message or several, and return which namespace accepted which.

        A message without an id gets one, which is stored on the object; with *key*, all ids are derived from the key
        and the content. Units: timeout in seconds, for each namespace, and for waiting behind other sends. Raises
        SendFailed, which has the outcome; WrongUse if nothing was sent.
        """
        if timeout is not None and timeout <= 0:
            raise invalid_timeout(timeout)
        prepared = with_ids(messages, key, self.session_of)
        if not prepared:
            return Outcome({})
        if not is_acquired_within(self._turn, timeout):
            error = OperationTimeoutError(message="Earlier sends did not end in time; this one was not started.")
            raise _failed({self._roles.roles.active: failed_delivery(prepared, error)})
        try:
            began = time.monotonic()
            failed: Exception | None = None
            active = self._roles.present
            if active is not None and len(prepared) == 1 and (link := self._links[active]).is_open:
                # The fast path of nearly all sends: whatever costs more than the send comes after an error.
                message_id, message = prepared[0]
                link.is_open = False
                try:
                    link.sender.send_messages(message, timeout=timeout)
                except Exception as error:  # noqa: BLE001 - classified with the deliveries
                    link.is_open, failed = True, error
                else:
                    link.is_open = True
                    return Outcome({active: Delivery((message_id,))})
            return self._send(prepared, timeout, began, failed)
        finally:
            self._turn.release()

    def activate(self, name: str) -> None:
        """Make *name* the active namespace, for example after an outage; raises WrongUse for an unknown name."""
        with self._turn:
            self._roles.make_active(name)

    def look(self) -> RoleState:
        """Read the shared roles now and return them."""
        with self._turn:
            self._roles.look()
            return self._roles.state

    def close(self) -> None:
        """Do nothing: the SDK's senders, which the caller closes, stay open."""

    def __enter__(self) -> Self:
        """Return the sender."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the sender."""
        self.close()

    def _send(
        self,
        messages: Sequence[OutgoingMessage],
        timeout: float | None,
        began: float,
        failed: Exception | None,
    ) -> Outcome:
        """
        Send to the active namespace; if it is unavailable, send what it has not accepted to a backup.

        *failed* is the error of a send over the open link of the active namespace, None if there was none. The send
        started at *began*, in seconds of time.monotonic().
        """
        # A failed send used the last known roles; new ones would blame its error on another namespace.
        if failed is None:
            self._roles.refresh()
        deliveries: dict[str, Delivery] = {}
        active = self._roles.roles.active
        for name in self._roles.roles.order:
            end = deadline_of(timeout, began if name == active else None)
            delivery = self._links[name].send(messages, end, failed)
            deliveries[name], failed = delivery, None
            if delivery.error is None:
                if name != active:
                    self._roles.activate(name)
                return Outcome(deliveries)
            if len(deliveries) == 1 and not is_unavailable(delivery.error):
                break
            messages = messages[len(delivery.accepted) :]
        raise _failed(deliveries)


def _failed(deliveries: Mapping[str, Delivery]) -> Exception:
    outcome = Outcome(deliveries)
    expected = "all messages in the active namespace, or in a backup during an outage"
    return send_failed(expected, outcome, outcome.accepted_nowhere)
