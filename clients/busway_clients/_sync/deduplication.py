# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
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
from typing import Any

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusReceivedMessage

from busway_clients.concurrency.threads import answer_of, in_thread, sleep
from busway_clients.errors import ClaimLost, DeadLetter, NotSynchronous, StoreUnavailable, WrongUse
from busway_clients.receivers.claims import ClaimRenewer, ClaimRequest
from busway_clients.receivers.messages import (
    PATIENCE,
    Handled,
    Identity,
    SdkReceiver,
    Watermark,
    WithoutIdentity,
    by_message_id,
)
from busway_clients.receivers.stores.store import Claim, LeasedStore, State, Store

LOGGER = logging.getLogger("busway_clients.receivers")
_LOOK_SECONDS = 0.05
_LONGEST_LOOK_SECONDS = 1.0
_RENEW_SECONDS = 15.0
_NOTHING = nullcontext()

Application = Callable[[ServiceBusReceivedMessage], object]
Pause = Callable[[float], object]


class Deduplication:
    """Handles one message at a time; shared by the receivers of all namespaces."""

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
        pause: Pause = sleep,
    ) -> Handled:
        """
        Process a message, or settle it without processing; once *is_over*, stop waiting for copies.

        Raises StoreUnavailable and leaves the message unsettled. If it is handled again and the application had
        already succeeded, the application is not called again.
        """
        if self._watermark is not None and self._watermark.is_behind(message):
            _settle(receiver.complete_message, message)
            return Handled.BEHIND
        identity = self._identity(message)
        if identity is None and self._without_identity == "dead-letter":
            text = "the property that identifies a message is missing"
            _settle(receiver.dead_letter_message, message, "NoIdentity", text)
            return Handled.DEAD_LETTERED
        if identity is None:
            return self._process(receiver, message, application, None)
        claim = self._wait_for_claim(receiver, message, identity, is_over, pause)
        if claim is State.DONE:
            _settle(receiver.complete_message, message)
            return Handled.DUPLICATE
        if claim is State.BUSY:
            _settle(receiver.abandon_message, message)
            return Handled.BUSY
        with _NOTHING if self._renewer is None else self._renewer.keeping(claim):
            return self._process(receiver, message, application, claim)

    def _process(
        self,
        receiver: SdkReceiver,
        message: ServiceBusReceivedMessage,
        application: Application,
        claim: Claim | None,
    ) -> Handled:
        try:
            answer_of(application(message))
        except DeadLetter as poison:
            self._release(claim)
            _settle(receiver.dead_letter_message, message, poison.reason, poison.description)
            return Handled.DEAD_LETTERED
        except NotSynchronous:
            self._let_go(claim)
            raise
        except Exception as error:  # noqa: BLE001 - after any error the message is delivered again
            LOGGER.warning("message %s: abandoned, the application raised %s", message.message_id, type(error).__name__)
            self._release(claim)
            _settle(receiver.abandon_message, message)
            return Handled.FAILED
        except BaseException:
            # Cancelled or interrupted: nothing can be awaited now.
            self._let_go(claim)
            raise
        if claim is not None:
            self._record(claim)
        _settle(receiver.complete_message, message)
        return Handled.PROCESSED

    def _wait_for_claim(
        self,
        receiver: SdkReceiver,
        message: ServiceBusReceivedMessage,
        identity: str,
        is_over: Callable[[], bool],
        pause: Pause,
    ) -> Claim | State:
        """Claim the message; while another receiver processes a copy, wait for the result."""
        if identity in self._unreported:
            claim, has_succeeded = self._unreported[identity]
            (self._record(claim) if has_succeeded else self._release(claim))
        started, pause_seconds = time.monotonic(), _LOOK_SECONDS
        while True:
            answer = self._request_claim(identity)
            if answer is not State.BUSY or is_over() or time.monotonic() - started >= self._patience:
                return answer
            pause(pause_seconds)
            pause_seconds = min(pause_seconds * 2, _LONGEST_LOOK_SECONDS)
            renewed(receiver, message)

    def _request_claim(self, identity: str) -> Claim | State:
        if self._store.is_local:
            return self._store.claim(identity, self._now())
        request = ClaimRequest(self._store, identity, self._now)
        try:
            answer: Claim | State = in_thread(request.run)
        except BaseException:
            request.cancel()
            raise
        return answer

    def _record(self, claim: Claim) -> None:
        self._unreported[claim.identity] = (claim, True)
        try:
            self._store_call(self._store.record, claim, self._now())
        except ClaimLost as lost:
            LOGGER.warning("message %s: processed, but a copy may be too: %s", claim.identity, lost)
        self._unreported.pop(claim.identity, None)

    def _release(self, claim: Claim | None) -> None:
        if claim is None:
            return
        self._unreported[claim.identity] = (claim, False)
        self._store_call(self._store.release, claim)
        self._unreported.pop(claim.identity, None)

    def _let_go(self, claim: Claim | None) -> None:
        """Release a claim at once: it must not outlive the work."""
        if claim is not None:
            with suppress(StoreUnavailable):
                self._store.release(claim)

    def _store_call(self, act: Callable[..., None], *arguments: Any) -> None:  # noqa: ANN401 - of a method of the store
        if self._store.is_local:
            act(*arguments)
        else:
            in_thread(act, *arguments)


def renewed(receiver: SdkReceiver, message: ServiceBusReceivedMessage) -> None:
    """Renew the lock on a message or its session if it ends soon; settling reports a lost lock."""
    until = message.locked_until_utc if receiver.session is None else receiver.session.locked_until_utc
    if until is None or until - datetime.now(UTC) > timedelta(seconds=_RENEW_SECONDS):
        return
    if receiver.session is None:
        _settle(receiver.renew_message_lock, message)
    else:
        _settle(receiver.session.renew_lock)


def _settle(act: Callable[..., Any], *arguments: Any) -> None:  # noqa: ANN401 - of a method of the SDK
    """Settle a message; if that fails it is delivered again, and the store's record decides what happens to it."""
    try:
        answer_of(act(*arguments))
    except (AzureError, OSError, ValueError) as error:
        LOGGER.warning("a message could not be settled and will be delivered again: %s", type(error).__name__)


_LOGGER = logging.getLogger("busway_clients.receivers")
