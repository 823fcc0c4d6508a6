"""Passive replication: one active namespace, and a backup for when it cannot be reached (article on outages)."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Self

from azure.servicebus.exceptions import OperationTimeoutError

from busway_clients.errors import WrongUse
from busway_clients.senders.delivery import TIMEOUT, Link, SdkSender, end_of, no_time, undelivered
from busway_clients.senders.error_kinds import is_unavailable
from busway_clients.senders.failure import send_failed
from busway_clients.senders.messages import Identified, Messages, SessionOf, identified
from busway_clients.senders.outcome import Delivery, Outcome
from busway_clients.senders.roles import RoleStore
from busway_clients.senders.sender_thread import SenderThread
from busway_clients.senders.shared_roles import REFRESH, RoleState, SharedRoles
from busway_clients.steps import Call, Steps, run


class PassiveSending:
    """What both kinds of passive sender decide, as steps."""

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
            raise WrongUse("the namespaces of a passive sender: are none, expected an active one and its backups")
        self.agreement = SharedRoles(tuple(links), roles, refresh, monotonic=monotonic)
        self.session_of = session_of
        self._links = links

    def prepared(self, messages: Messages, key: str | None, timeout: float | None) -> list[Identified]:
        """Return the messages with their ids; raises WrongUse for what cannot be sent at all."""
        if timeout is not None and timeout <= 0:
            raise no_time(timeout)
        return identified(messages, key, self.session_of)

    def send(
        self, messages: Sequence[Identified], timeout: float | None, began: float, failed: Exception | None
    ) -> Steps[Outcome]:
        """
        Send to the active namespace, or where that cannot be reached what it has not accepted to a backup.

        *failed* is how sending over the open link of the active one has ended, which *began* in seconds of
        time.monotonic().
        """
        agreement = self.agreement
        # What has failed has failed by the roles that were seen then.
        if failed is None:
            yield from agreement.refresh()
        deliveries: dict[str, Delivery] = {}
        rest = messages
        active = agreement.roles.active
        for name in agreement.roles.order:
            end = end_of(timeout, began if name == active else None)
            delivery: Delivery = yield Call(partial(self._links[name].send, rest, end, failed))
            deliveries[name], failed = delivery, None
            if delivery.error is None:
                if name != active:
                    yield from agreement.activate(name)
                return Outcome(deliveries)
            if len(deliveries) == 1 and not is_unavailable(delivery.error):
                break
            rest = rest[len(delivery.accepted) :]
        raise self._failed(deliveries)

    def not_begun(self, messages: Sequence[Identified]) -> Exception:
        """Return the error of a send whose turn did not come in time, behind other sends."""
        error = OperationTimeoutError(message="Earlier sends have not come back in time; this one was not begun.")
        return self._failed({self.agreement.roles.active: undelivered(messages, error)})

    def _failed(self, deliveries: Mapping[str, Delivery]) -> Exception:
        outcome = Outcome(deliveries)
        expected = "all messages in the active namespace, or in a backup while that is unavailable"
        return send_failed(expected, outcome, outcome.accepted_nowhere)


class PassiveSender:
    """
    Sends to the active namespace, and to a backup when the active one cannot be reached.

    A link that was open and fails is opened again before its namespace counts as unavailable. The two swap roles if the
    backup     accepts. If none accepts, roles stay as they are and SendFailed has each error.
    Errors that do not mean unavailability (authorization, size, quota, throttling, an entity that is missing) switch
    nothing. The senders are the SDK's and stay open: the caller closes them. May be called from several threads.
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
        Send by *senders*, named by their namespaces, at first to the first; one alone has no backup.

        *roles* is where processes agree on who is active, by default this process alone; it is read every *refresh*.
        An unreachable store stops no send: the roles last seen hold until it answers. *session_of* gives the session
        of a message that has none. Units: monotonic in seconds.
        """
        self._links = {name: SenderThread(name, sender) for name, sender in senders.items()}
        self._sending = PassiveSending(self._links, roles, refresh, session_of, monotonic=monotonic)
        self._turn = threading.Lock()

    @property
    def session_of(self) -> SessionOf | None:
        """Return what gives the session of a message that has none."""
        return self._sending.session_of

    @property
    def state(self) -> RoleState:
        """Return the roles as they were last seen."""
        return self._sending.agreement.state

    def send(self, messages: Messages, *, key: str | None = None, timeout: float | None = TIMEOUT) -> Outcome:
        """
        Send one message or several, and return which namespace took which.

        An id that a message lacks is made once and kept on it; with *key* all ids are derived from it and the contents.
        Units: timeout in seconds, for each namespace, and for the sends of others that come first. Raises SendFailed,
        which has the outcome; WrongUse where nothing was sent.
        """
        prepared = self._sending.prepared(messages, key, timeout)
        if not prepared:
            return Outcome({})
        # In two steps: acquiring with a timeout is slower even if the lock is free.
        if not self._turn.acquire(blocking=False):
            seconds = -1 if timeout is None else min(timeout, threading.TIMEOUT_MAX)
            if not self._turn.acquire(timeout=seconds):
                raise self._sending.not_begun(prepared)
        try:
            began = time.monotonic()
            failed: Exception | None = None
            active = self._sending.agreement.present
            if active is not None and len(prepared) == 1 and (link := self._links[active]).is_open:
                # Nearly all sends are this one; what goes wrong with it is the flow's.
                message_id, message = prepared[0]
                try:
                    link.sender.send_messages(message, timeout=timeout)
                except Exception as error:  # noqa: BLE001 - likewise
                    failed = error
                else:
                    return Outcome({active: Delivery((message_id,))})
            return run(self._sending.send(prepared, timeout, began, failed))
        finally:
            self._turn.release()

    def activate(self, name: str) -> None:
        """Make *name* the active namespace, as after an outage that is over; WrongUse for one that is unknown."""
        with self._turn:
            run(self._sending.agreement.appoint(name))

    def look(self) -> RoleState:
        """Read the shared roles now and return them."""
        with self._turn:
            run(self._sending.agreement.look())
            return self._sending.agreement.state

    def close(self) -> None:
        """End the threads; the SDK's senders stay open."""
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
