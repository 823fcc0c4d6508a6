"""
How a deduplicating receiver handles one message.

1. It claims the message in the store. Of several copies, from any namespaces, one is claimed at a time.
2. The application processes it.
3. The store records the success, and only then the message is completed. After a crash before the record, the message
   is processed again; after a later crash, the next delivery is completed without processing.
4. If the application fails, the claim is released and the message is abandoned: another copy or delivery is processed.
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
from busway_clients.receivers.claims import ClaimRenewer, ClaimRequest
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
    """Raised by an application to dead-letter a message that no retry can process."""

    def __init__(self, reason: str, description: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.description = description


class Handled(Enum):
    """The outcome of a message."""

    PROCESSED = "processed by the application, and completed"
    DUPLICATE = "completed, since a copy had been processed"
    BEHIND = "completed, since it is behind the watermark"
    FAILED = "abandoned, since the application failed"
    BUSY = "abandoned, since another receiver is still processing a copy"
    DEAD_LETTERED = "dead-lettered by the application, or since it has no identity"


class SdkReceiver(Protocol):
    """The methods used of the SDK's receiver, synchronous or asynchronous."""

    @property
    def session(self) -> Any:  # noqa: ANN401 - the SDK's type
        """The locked session, None for an entity without sessions."""

    def receive_messages(self, max_message_count: int | None = 1, max_wait_time: float | None = None) -> Any:  # noqa: ANN401 - the SDK's type
        """Return messages, or an awaitable of them."""

    def complete_message(self, message: ServiceBusReceivedMessage) -> Any:  # noqa: ANN401 - the SDK's type
        """Complete a message."""

    def abandon_message(self, message: ServiceBusReceivedMessage) -> Any:  # noqa: ANN401 - the SDK's type
        """Abandon a message."""

    def dead_letter_message(
        self, message: ServiceBusReceivedMessage, reason: str | None = None, error_description: str | None = None
    ) -> Any:  # noqa: ANN401 - the SDK's type
        """Dead-letter a message."""

    def renew_message_lock(self, message: ServiceBusReceivedMessage) -> Any:  # noqa: ANN401 - the SDK's type
        """Renew the lock on a message."""


class Deduplication:
    """Handles one message at a time, as steps; shared by the receivers of all namespaces and their threads."""

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
        # Abandoning a copy uses up one of its deliveries, so wait until the claim of a dead process has expired.
        self._patience = patience.total_seconds()
        self._renewer = None
        if isinstance(store, LeasedStore):
            self._patience = max(self._patience, store.lease.total_seconds() + _LONGEST_LOOK_SECONDS)
            self._renewer = ClaimRenewer(store, now)
        self._without_identity = without_identity
        self._now = now
        # Claims that ended while the store was unavailable, and whether the application succeeded.
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
        Process a message, or settle it without processing; once *is_over*, stop waiting for copies.

        Raises StoreUnavailable and leaves the message unsettled. If it is handled again and the application had
        already succeeded, the application is not called again.
        """
        if self._watermark is not None and self._watermark.is_behind(message):
            yield from _settle(lambda: receiver.complete_message(message))
            return Handled.BEHIND
        identity = self._identity(message)
        if identity is None and self._without_identity == "dead-letter":
            text = "the property that identifies a message is missing"
            yield from _settle(lambda: receiver.dead_letter_message(message, "NoIdentity", text))
            return Handled.DEAD_LETTERED
        if identity is None:
            return (yield from self._process(receiver, message, application, None))
        claim = yield from self._wait_for_claim(receiver, message, identity, is_over, pause)
        if claim is State.DONE:
            yield from _settle(lambda: receiver.complete_message(message))
            return Handled.DUPLICATE
        if claim is State.BUSY:
            yield from _settle(lambda: receiver.abandon_message(message))
            return Handled.BUSY
        with _NOTHING if self._renewer is None else self._renewer.keeping(claim):
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
            yield from _settle(lambda: receiver.dead_letter_message(message, reason, description))
            return Handled.DEAD_LETTERED
        except Exception as error:  # noqa: BLE001 - after any error the message is delivered again
            _LOGGER.warning(
                "message %s: abandoned, the application raised %s", message.message_id, type(error).__name__
            )
            yield from self._release(claim)
            yield from _settle(lambda: receiver.abandon_message(message))
            return Handled.FAILED
        except BaseException:
            # Cancelled or interrupted: nothing can be awaited now, and the claim must not outlive the work.
            if claim is not None:
                with suppress(StoreUnavailable):
                    self._store.release(claim)
            raise
        if claim is not None:
            yield from self._record(claim)
        yield from _settle(lambda: receiver.complete_message(message))
        return Handled.PROCESSED

    def _wait_for_claim(
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
        started, pause_seconds = time.monotonic(), _LOOK_SECONDS
        while True:
            answer = yield from self._request_claim(identity)
            if answer is not State.BUSY or is_over() or time.monotonic() - started >= self._patience:
                return answer
            yield pause(pause_seconds)
            pause_seconds = min(pause_seconds * 2, _LONGEST_LOOK_SECONDS)
            yield from renewed(receiver, message)

    def _request_claim(self, identity: str) -> Steps[Claim | State]:
        if self._store.is_local:
            return self._store.claim(identity, self._now())
        request = ClaimRequest(self._store, identity, self._now)
        try:
            answer: Claim | State = yield self._store_call(request.run)
        except BaseException:
            request.cancel()
            raise
        return answer

    def _record(self, claim: Claim) -> Steps[None]:
        self._unreported[claim.identity] = (claim, True)
        try:
            yield self._store_call(lambda: self._store.record(claim, self._now()))
        except ClaimLost as lost:
            _LOGGER.warning("message %s: processed, but a copy may be too: %s", claim.identity, lost)
        self._unreported.pop(claim.identity, None)

    def _release(self, claim: Claim | None) -> Steps[None]:
        if claim is None:
            return
        self._unreported[claim.identity] = (claim, False)
        yield self._store_call(lambda: self._store.release(claim))
        self._unreported.pop(claim.identity, None)

    def _store_call(self, act: Callable[[], Any]) -> Call:
        return Call(act, blocks=not self._store.is_local)


def opening(receiver: Any) -> Call:  # noqa: ANN401 - the SDK's two receivers have no common type
    """Return the call that opens the link of a receiver, as entering its context does."""
    return Call(receiver.__aenter__ if hasattr(receiver, "__aenter__") else receiver.__enter__)


def renewed(receiver: SdkReceiver, message: ServiceBusReceivedMessage) -> Steps[None]:
    """Renew the lock on a message or its session if it ends soon; settling reports a lost lock."""
    until = message.locked_until_utc if receiver.session is None else receiver.session.locked_until_utc
    if until is None or until - datetime.now(UTC) > timedelta(seconds=_RENEW_SECONDS):
        return
    renew = (
        receiver.session.renew_lock if receiver.session is not None else lambda: receiver.renew_message_lock(message)
    )
    yield from _settle(renew)


def _settle(act: Callable[[], Any]) -> Steps[None]:
    """Settle a message; if that fails it is delivered again, and the store's record decides what happens to it."""
    try:
        yield Call(act)
    except (AzureError, OSError, ValueError) as error:
        _LOGGER.warning("a message could not be settled and will be delivered again: %s", type(error).__name__)
