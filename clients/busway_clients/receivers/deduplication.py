"""
What a de-duplicating receiver does with one message.

1. The message is claimed in the store. Of several copies, from whatever namespaces, one is claimed at a time.
2. The application processes it.
3. That it has succeeded is recorded, and only then the message is completed. A crash before the record leaves the
   message where it is: it is processed again. A crash after it leaves a copy that is completed unprocessed.
4. Where the application fails the claim is given back, and the message abandoned: another copy or delivery is
   processed.
"""

import logging
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, Literal, Protocol

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusReceivedMessage

from busway_clients.errors import ClaimLost, ClientsError, StoreUnavailable, WrongUse
from busway_clients.receivers.claims import Beats, Claiming
from busway_clients.receivers.identity import Identity, Watermark, by_message_id
from busway_clients.receivers.stores.store import Claim, LeasedStore, State, Store
from busway_clients.steps import Call, Steps, sleep

_LOGGER = logging.getLogger("busway_clients.receivers")
PATIENCE = timedelta(minutes=1)
_LOOK_SECONDS = 0.05
_LONGEST_LOOK_SECONDS = 1.0
_RENEW_SECONDS = 15.0
_NOTHING = nullcontext()

Application = Callable[[ServiceBusReceivedMessage], Any]
WithoutIdentity = Literal["process", "dead-letter"]


class DeadLetter(ClientsError):
    """Raised by an application for a message that no retry can process; it goes to the dead-letter queue."""

    def __init__(self, reason: str, description: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.description = description


class Handled(Enum):
    """The outcome of a message."""

    PROCESSED = "processed by the application, and completed"
    DUPLICATE = "completed, since a copy had been processed"
    BEHIND = "completed, since it lies behind the watermark"
    FAILED = "abandoned, since the application failed"
    BUSY = "abandoned, since another receiver is still processing a copy"
    DEAD_LETTERED = "dead-lettered by the application, or for want of an identity"


class SdkReceiver(Protocol):
    """What is used of an SDK's receiver of either kind."""

    @property
    def session(self) -> Any:  # noqa: ANN401 - what the SDK gives
        """The session that is locked, None where there are no sessions."""

    def receive_messages(self, max_message_count: int | None = 1, max_wait_time: float | None = None) -> Any:  # noqa: ANN401 - likewise
        """Return messages, or an awaitable of them."""

    def complete_message(self, message: ServiceBusReceivedMessage) -> Any:  # noqa: ANN401 - likewise
        """Complete a message."""

    def abandon_message(self, message: ServiceBusReceivedMessage) -> Any:  # noqa: ANN401 - likewise
        """Abandon a message."""

    def dead_letter_message(
        self, message: ServiceBusReceivedMessage, reason: str | None = None, error_description: str | None = None
    ) -> Any:  # noqa: ANN401 - likewise
        """Dead-letter a message."""

    def renew_message_lock(self, message: ServiceBusReceivedMessage) -> Any:  # noqa: ANN401 - likewise
        """Renew the lock on a message."""


class Deduplication:
    """One message at a time, as a flow; shared by the receivers of all namespaces, in any threads."""

    def __init__(
        self,
        store: Store,
        *,
        identity: Identity = by_message_id,
        watermark: Watermark | None = None,
        patience: timedelta = PATIENCE,
        without_identity: WithoutIdentity = "process",
        now: Callable[[], float] = time.time,
    ) -> None:
        if without_identity not in ("process", "dead-letter"):
            raise WrongUse(f"without_identity: is {without_identity!r}, expected 'process' or 'dead-letter'")
        self._store = store
        self._identity = identity
        self._watermark = watermark
        # To abandon a copy costs one of its deliveries, so wait until the claim of a dead process has ended.
        self._patience = patience.total_seconds()
        self._beats = None
        if isinstance(store, LeasedStore):
            self._patience = max(self._patience, store.lease.total_seconds() + _LONGEST_LOOK_SECONDS)
            self._beats = Beats(store, now)
        self._without_identity = without_identity
        self._now = now
        # Our claims whose end the store has not recorded yet, and whether the application succeeded.
        self._unreported: dict[str, tuple[Claim, bool]] = {}

    def handle(
        self,
        receiver: SdkReceiver,
        message: ServiceBusReceivedMessage,
        application: Application,
        *,
        is_over: Callable[[], bool] = lambda: False,
        pause: Callable[[float], Call] = sleep,
    ) -> Steps[Handled]:
        """
        Return the flow that processes a message, or settles it unprocessed; it waits for no copy any more if *is_over*.

        Raises StoreUnavailable, with the message unsettled: it may be handled again, and what the application has
        done is not done twice then.
        """
        if self._watermark is not None and self._watermark.is_behind(message):
            yield from _settled(lambda: receiver.complete_message(message))
            return Handled.BEHIND
        identity = self._identity(message)
        if identity is None and self._without_identity == "dead-letter":
            text = "the property that identifies a message is missing"
            yield from _settled(lambda: receiver.dead_letter_message(message, "NoIdentity", text))
            return Handled.DEAD_LETTERED
        if identity is None:
            return (yield from self._process(receiver, message, application, None))
        claim = yield from self._claimed(receiver, message, identity, is_over, pause)
        if claim is State.DONE:
            yield from _settled(lambda: receiver.complete_message(message))
            return Handled.DUPLICATE
        if claim is State.BUSY:
            yield from _settled(lambda: receiver.abandon_message(message))
            return Handled.BUSY
        with _NOTHING if self._beats is None else self._beats.keeping(claim):
            return (yield from self._process(receiver, message, application, claim))

    def _process(
        self,
        receiver: SdkReceiver,
        message: ServiceBusReceivedMessage,
        application: Application,
        claim: Claim | None,
    ) -> Steps[Handled]:
        try:
            yield Call(lambda: application(message))
        except DeadLetter as poison:
            yield from self._release(claim)
            reason, description = poison.reason, poison.description
            yield from _settled(lambda: receiver.dead_letter_message(message, reason, description))
            return Handled.DEAD_LETTERED
        except Exception as error:  # noqa: BLE001 - whatever the application raises, the message comes again
            _LOGGER.warning(
                "message %s is abandoned: the application raised %s", message.message_id, type(error).__name__
            )
            yield from self._release(claim)
            yield from _settled(lambda: receiver.abandon_message(message))
            return Handled.FAILED
        except BaseException:
            # Cancelled or interrupted: nothing may be awaited any more, and the claim must not outlive the work.
            if claim is not None:
                with suppress(StoreUnavailable):
                    self._store.release(claim)
            raise
        if claim is not None:
            yield from self._record(claim)
        yield from _settled(lambda: receiver.complete_message(message))
        return Handled.PROCESSED

    def _claimed(
        self,
        receiver: SdkReceiver,
        message: ServiceBusReceivedMessage,
        identity: str,
        is_over: Callable[[], bool],
        pause: Callable[[float], Call],
    ) -> Steps[Claim | State]:
        """Claim the message; while another receiver processes a copy, wait for the result."""
        if identity in self._unreported:
            claim, has_succeeded = self._unreported[identity]
            yield from self._record(claim) if has_succeeded else self._release(claim)
        started, pausing = time.monotonic(), _LOOK_SECONDS
        while True:
            answer = yield from self._asked_for_claim(identity)
            if answer is not State.BUSY or is_over() or time.monotonic() - started >= self._patience:
                return answer
            yield pause(pausing)
            pausing = min(pausing * 2, _LONGEST_LOOK_SECONDS)
            yield from renewed(receiver, message)

    def _asked_for_claim(self, identity: str) -> Steps[Claim | State]:
        if self._store.is_local:
            return self._store.claim(identity, self._now())
        claiming = Claiming(self._store, identity, self._now)
        try:
            answer: Claim | State = yield self._asking(claiming.ask)
        except BaseException:
            claiming.give_up()
            raise
        return answer

    def _record(self, claim: Claim) -> Steps[None]:
        self._unreported[claim.identity] = (claim, True)
        try:
            yield self._asking(lambda: self._store.record(claim, self._now()))
        except ClaimLost as lost:
            _LOGGER.warning("a message took longer than its claim, and a copy may be processed too: %s", lost)
        self._unreported.pop(claim.identity, None)

    def _release(self, claim: Claim | None) -> Steps[None]:
        if claim is None:
            return
        self._unreported[claim.identity] = (claim, False)
        yield self._asking(lambda: self._store.release(claim))
        self._unreported.pop(claim.identity, None)

    def _asking(self, act: Callable[[], Any]) -> Call:
        return Call(act, blocks=not self._store.is_local)


def opening(receiver: Any) -> Call:  # noqa: ANN401 - what opens it differs between the two kinds
    """Return the call that opens the link of a receiver, as its context does."""
    return Call(receiver.__aenter__ if hasattr(receiver, "__aenter__") else receiver.__enter__)


def renewed(receiver: SdkReceiver, message: ServiceBusReceivedMessage) -> Steps[None]:
    """Renew the lock on a message, or on its session, where it ends soon; a lock that is lost shows when settled."""
    until = message.locked_until_utc if receiver.session is None else receiver.session.locked_until_utc
    if until is None or until - datetime.now(UTC) > timedelta(seconds=_RENEW_SECONDS):
        return
    renew = (
        receiver.session.renew_lock if receiver.session is not None else lambda: receiver.renew_message_lock(message)
    )
    yield from _settled(renew)


def _settled(act: Callable[[], Any]) -> Steps[None]:
    """Settle a message; one that cannot be settled comes again, and what is known of it decides then."""
    try:
        yield Call(act)
    except (AzureError, OSError, ValueError) as error:
        _LOGGER.warning("a message could not be settled and will be delivered again: %s", type(error).__name__)
