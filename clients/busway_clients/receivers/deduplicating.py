"""A receiver over several namespaces that gives each message to the application once."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
from time import monotonic
from typing import Any

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusReceivedMessage

from busway_clients.errors import StoreUnavailable, WrongUse
from busway_clients.receivers.deduplication import (
    _LOGGER,
    PATIENCE,
    Application,
    Deduplication,
    Handled,
    SdkReceiver,
    WithoutIdentity,
    opening,
    renewed,
)
from busway_clients.receivers.identity import Identity, Watermark, by_message_id
from busway_clients.receivers.stores.store import Store
from busway_clients.steps import Call, Steps, run

WAIT_SECONDS = 5.0
_LOOK_SECONDS = 0.05
_END_SECONDS = 2 * WAIT_SECONDS
_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0


class Receiving:
    """What both kinds of receiver do alike, as flows: one for each namespace."""

    def __init__(self, receivers: Mapping[str, SdkReceiver], deduplication: Deduplication) -> None:
        if not receivers:
            raise WrongUse("the namespaces of a receiver: are none, expected one at least")
        self.receivers = dict(receivers)
        self.counts: dict[str, Counter[Handled]] = {name: Counter() for name in receivers}
        self.errors: dict[str, Exception | None] = dict.fromkeys(receivers)
        self.is_handling = dict.fromkeys(receivers, False)
        self._deduplication = deduplication

    def receive(
        self,
        name: str,
        application: Application,
        *,
        is_over: Callable[[], bool],
        pause: Callable[[float], Call],
        idle: float | None,
    ) -> Steps[None]:
        """Receive from one namespace until it is over; one that cannot be reached is tried again."""
        receiver = self.receivers[name]
        since, pausing, is_open = monotonic(), _PAUSE_SECONDS, False
        wait = WAIT_SECONDS if idle is None else min(idle, WAIT_SECONDS)
        while not is_over() and (idle is None or monotonic() - since < idle):
            try:
                if not is_open:
                    # Apart from the first receive, whose wait may be shorter than opening takes.
                    yield opening(receiver)
                    since, is_open = monotonic(), True
                messages = yield Call(lambda: receiver.receive_messages(max_message_count=1, max_wait_time=wait))
            except (AzureError, OSError) as error:
                if self.errors[name] is None:
                    _LOGGER.warning("%s cannot be received from: %s", name, type(error).__name__)
                self.errors[name] = error
                yield pause(pausing)
                pausing = min(pausing * 2, _LONGEST_PAUSE_SECONDS)
                continue
            self.errors[name], pausing = None, _PAUSE_SECONDS
            for message in messages:
                yield from self._handle(name, message, application, is_over, pause)
                since = monotonic()

    def handle(self, name: str, message: ServiceBusReceivedMessage, application: Application) -> Steps[Handled]:
        """Handle one message, and count what became of it."""
        if name not in self.receivers:
            raise WrongUse(f"the namespace of a message: is {name!r}, expected one of {', '.join(self.receivers)}")
        handled = yield from self._deduplication.handle(self.receivers[name], message, application)
        self.counts[name][handled] += 1
        return handled

    def _handle(
        self,
        name: str,
        message: ServiceBusReceivedMessage,
        application: Application,
        is_over: Callable[[], bool],
        pause: Callable[[float], Call],
    ) -> Steps[None]:
        """Handle a message; while the store does not answer, keep its lock, so that no delivery is counted for it."""
        while True:
            self.is_handling[name] = True
            try:
                yield from self.handle(name, message, application)
            except StoreUnavailable as error:
                if self.errors[name] is None:
                    _LOGGER.warning("%s waits for the store: %s", name, error)
                self.errors[name] = error
                if is_over():
                    return
                yield pause(_PAUSE_SECONDS)
                yield from renewed(self.receivers[name], message)
            else:
                self.errors[name] = None
                return
            finally:
                self.is_handling[name] = False


class DeduplicatingReceiver:
    """
    Receives from all namespaces at once, and has each message processed once, whichever copy comes first.

    A message counts as processed when the application has returned and the store knows of it; then it is completed.
    An application that raises gets it again (abandoned, until the queue's MaxDeliveryCount), with `DeadLetter` never.
    While one copy is being processed the others wait: if that succeeds they are completed, if it fails the next one
    is processed. After *patience* a waiting one is abandoned. Once means: unless a process dies, or the store does
    not answer to the end of it, between the application's success and the record. The receivers are the SDK's, in
    peek-lock mode, one queue or subscription of each namespace; they stay the caller's to close.
    """

    def __init__(
        self,
        receivers: Mapping[str, SdkReceiver],
        store: Store,
        *,
        identity: Identity = by_message_id,
        watermark: Watermark | None = None,
        patience: timedelta = PATIENCE,
        without_identity: WithoutIdentity = "process",
    ) -> None:
        """
        Receive by *receivers*, named by their namespaces, and remember in *store*.

        A message without *identity* is processed unremembered, or dead-lettered. What lies behind the *watermark* is
        completed unprocessed.
        """
        deduplication = Deduplication(
            store, identity=identity, watermark=watermark, patience=patience, without_identity=without_identity
        )
        self._receiving = Receiving(receivers, deduplication)

    @property
    def counts(self) -> Mapping[str, Mapping[Handled, int]]:
        """Return what became of the messages, by namespace."""
        return self._receiving.counts

    @property
    def errors(self) -> Mapping[str, Exception | None]:
        """Return what each namespace waits for, None where it receives."""
        return self._receiving.errors

    def handle(self, name: str, message: ServiceBusReceivedMessage, application: Application) -> Handled:
        """
        Handle one message that was received from the namespace *name*, for an application with a loop of its own.

        Raises StoreUnavailable, with the message unsettled: it may be handled again while its lock lasts.
        """
        return run(self._receiving.handle(name, message, application))

    def run(
        self,
        application: Callable[[ServiceBusReceivedMessage], Any],
        stop: threading.Event,
        *,
        idle: float | None = None,
    ) -> None:
        """
        Receive until *stop* is set, or nothing has come from any namespace for *idle* seconds.

        The application is called in a thread for each namespace. What it raises beyond Exception ends the run.
        """
        failures: list[BaseException] = []

        def receive(name: str) -> None:
            try:
                run(
                    self._receiving.receive(
                        name,
                        application,
                        is_over=lambda: stop.is_set() or bool(failures),
                        pause=lambda seconds: Call(lambda: stop.wait(seconds)),
                        idle=idle,
                    )
                )
            except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
                failures.append(error)

        threads = {
            name: threading.Thread(target=receive, args=(name,), name=f"receive from {name}", daemon=True)
            for name in self.errors
        }
        for thread in threads.values():
            thread.start()
        end = None
        while any(thread.is_alive() for thread in threads.values()):
            for thread in threads.values():
                thread.join(_LOOK_SECONDS)
            if end is None and (stop.is_set() or failures):
                end = monotonic() + _END_SECONDS
            # The SDK may be held for ever by a peer that says nothing; an application that works is waited for.
            if end is not None and monotonic() > end and not any(self._receiving.is_handling.values()):
                break
        if failures:
            raise failures[0]
