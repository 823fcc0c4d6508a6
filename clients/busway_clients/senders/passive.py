"""Passive replication: one active namespace, and backups for when it is unavailable (Microsoft Learn, outages)."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Self

from azure.servicebus.exceptions import OperationTimeoutError

from busway_clients.errors import WrongUse
from busway_clients.senders.delivery import TIMEOUT, Link, SdkSender, deadline_of, failed_delivery, invalid_timeout
from busway_clients.senders.error_kinds import is_unavailable
from busway_clients.senders.failure import send_failed
from busway_clients.senders.messages import Messages, OutgoingMessage, SessionOf, with_ids
from busway_clients.senders.outcome import Delivery, Outcome
from busway_clients.senders.roles import RoleStore
from busway_clients.senders.sender_thread import SenderThread
from busway_clients.senders.shared_roles import REFRESH, RoleState, SharedRoles
from busway_clients.steps import Call, Steps, run


class PassiveSending:
    """The logic that the synchronous and the asynchronous passive sender share, as steps."""

    def __init__(
        self,
        links: Mapping[str, Link],
        roles: RoleStore | None,
        refresh: timedelta,
        session_of: SessionOf | None,
        *,
        monotonic: Callable[[], float],
    ) -> None:
        if not links:
            raise WrongUse("senders of a passive sender: got none, expected an active namespace and its backups")
        self.shared_roles = SharedRoles(tuple(links), roles, refresh, monotonic=monotonic)
        self.session_of = session_of
        self._links = links

    def with_ids(self, messages: Messages, key: str | None, timeout: float | None) -> list[OutgoingMessage]:
        """Return the messages with their ids; raises WrongUse for one that can never be sent."""
        if timeout is not None and timeout <= 0:
            raise invalid_timeout(timeout)
        return with_ids(messages, key, self.session_of)

    def send(
        self, messages: Sequence[OutgoingMessage], timeout: float | None, began: float, failed: Exception | None
    ) -> Steps[Outcome]:
        """
        Send to the active namespace; if it is unavailable, send what it has not accepted to a backup.

        *failed* is the error of a send over the open link of the active namespace, None if there was none. The send
        started at *began*, in seconds of time.monotonic().
        """
        shared_roles = self.shared_roles
        # A failed send used the last known roles; new ones would blame its error on another namespace.
        if failed is None:
            yield from shared_roles.refresh()
        deliveries: dict[str, Delivery] = {}
        rest = messages
        active = shared_roles.roles.active
        for name in shared_roles.roles.order:
            end = deadline_of(timeout, began if name == active else None)
            delivery: Delivery = yield Call(partial(self._links[name].send, rest, end, failed))
            deliveries[name], failed = delivery, None
            if delivery.error is None:
                if name != active:
                    yield from shared_roles.activate(name)
                return Outcome(deliveries)
            if len(deliveries) == 1 and not is_unavailable(delivery.error):
                break
            rest = rest[len(delivery.accepted) :]
        raise self._failed(deliveries)

    def not_started(self, messages: Sequence[OutgoingMessage]) -> Exception:
        """Return the error of a send that timed out while it waited for earlier sends."""
        error = OperationTimeoutError(message="Earlier sends did not end in time; this one was not started.")
        return self._failed({self.shared_roles.roles.active: failed_delivery(messages, error)})

    def _failed(self, deliveries: Mapping[str, Delivery]) -> Exception:
        outcome = Outcome(deliveries)
        expected = "all messages in the active namespace, or in a backup during an outage"
        return send_failed(expected, outcome, outcome.accepted_nowhere)


class PassiveSender:
    """
    Sends to the active namespace, and to a backup when the active one is unavailable.

    A link that was open and fails is reopened once before its namespace counts as unavailable. If a backup accepts the
    messages, the two swap roles. If none accepts, the roles stay as they are and SendFailed has each error.
    Errors that do not mean unavailability (authorization, size, quota, throttling, a missing entity) cause no switch.
    The senders are the SDK's; the caller closes them. Safe to call from several threads.
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
        self._links = {name: SenderThread(name, sender) for name, sender in senders.items()}
        self._sending = PassiveSending(self._links, roles, refresh, session_of, monotonic=monotonic)
        self._lock = threading.Lock()

    @property
    def session_of(self) -> SessionOf | None:
        """Return the function that gives a session id to a message without one."""
        return self._sending.session_of

    @property
    def state(self) -> RoleState:
        """Return the last known roles."""
        return self._sending.shared_roles.state

    def send(self, messages: Messages, *, key: str | None = None, timeout: float | None = TIMEOUT) -> Outcome:
        """
        Send one message or several, and return which namespace accepted which.

        A message without an id gets one, which is stored on the object; with *key*, all ids are derived from the key
        and the content. Units: timeout in seconds, for each namespace, and for waiting behind other sends. Raises
        SendFailed, which has the outcome; WrongUse if nothing was sent.
        """
        with_ids = self._sending.with_ids(messages, key, timeout)
        if not with_ids:
            return Outcome({})
        # In two steps: acquiring with a timeout is slower even if the lock is free.
        if not self._lock.acquire(blocking=False):
            seconds = -1 if timeout is None else min(timeout, threading.TIMEOUT_MAX)
            if not self._lock.acquire(timeout=seconds):
                raise self._sending.not_started(with_ids)
        try:
            began = time.monotonic()
            failed: Exception | None = None
            active = self._sending.shared_roles.present
            if active is not None and len(with_ids) == 1 and (link := self._links[active]).is_open:
                # The fast path of nearly all sends; the steps handle its errors.
                message_id, message = with_ids[0]
                try:
                    link.sender.send_messages(message, timeout=timeout)
                except Exception as error:  # noqa: BLE001 - the steps classify it
                    failed = error
                else:
                    return Outcome({active: Delivery((message_id,))})
            return run(self._sending.send(with_ids, timeout, began, failed))
        finally:
            self._lock.release()

    def activate(self, name: str) -> None:
        """Make *name* the active namespace, for example after an outage; raises WrongUse for an unknown name."""
        with self._lock:
            run(self._sending.shared_roles.make_active(name))

    def look(self) -> RoleState:
        """Read the shared roles now and return them."""
        with self._lock:
            run(self._sending.shared_roles.look())
            return self._sending.shared_roles.state

    def close(self) -> None:
        """Stop the threads; the SDK's senders stay open."""
        for link in self._links.values():
            link.close()

    def __enter__(self) -> Self:
        """Return the sender."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the sender."""
        self.close()
