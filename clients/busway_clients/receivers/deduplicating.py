"""A receiver over several namespaces that gives each message to the application once."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import timedelta
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
from busway_clients.receivers.receive_run import OPEN_SECONDS, WAIT_SECONDS, ReceiveRun
from busway_clients.receivers.stores.store import Store
from busway_clients.senders.error_kinds import condition_of, describe
from busway_clients.steps import Call, Steps, run

LOOK_SECONDS = 0.05
_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0
# Errors of configuration at the start. Later they may be temporary: an entity is recreated, or a namespace replaced.
_MISTAKES = {"amqp:not-found", "amqp:not-allowed"}


class Receiving:
    """The logic that both receivers share, as steps for each namespace."""

    def __init__(self, receivers: Mapping[str, SdkReceiver], deduplication: Deduplication) -> None:
        if not receivers:
            raise WrongUse("receivers of a receiver: got none, expected at least one namespace")
        self.receivers = dict(receivers)
        self.counts: dict[str, Counter[Handled]] = {name: Counter() for name in receivers}
        self.errors: dict[str, Exception | None] = dict.fromkeys(receivers)
        self._deduplication = deduplication

    def receive(
        self, name: str, application: Application, receive_run: ReceiveRun, pause: Callable[[float], Call]
    ) -> Steps[None]:
        """
        Receive from one namespace until the run is over; errors are retried.

        Raises WrongUse at the start for an entity that does not exist or does not allow this receiver.
        """
        receiver = self.receivers[name]
        pause_seconds, is_open, has_answered = _PAUSE_SECONDS, False, False
        wait = WAIT_SECONDS if receive_run.idle is None else min(receive_run.idle, WAIT_SECONDS)
        while not receive_run.is_over():
            try:
                if not is_open:
                    # Separate from the first receive, whose wait may be shorter than opening takes.
                    yield opening(receiver)
                    is_open = True
                    receive_run.note_answer(name)
                    continue
                messages = yield Call(lambda: receiver.receive_messages(max_message_count=1, max_wait_time=wait))
            except (AzureError, OSError) as error:
                receive_run.note_answer(name)
                if not has_answered and condition_of(error) in _MISTAKES:
                    raise WrongUse(
                        f"the receiver of {name}: {describe(error)}, expected an existing entity, "
                        "and a session if the entity requires sessions"
                    ) from error
                if self.errors[name] is None:
                    _LOGGER.warning("%s: receiving failed and is retried: %s", name, describe(error))
                self.errors[name] = error
                yield pause(pause_seconds if receive_run.idle is None else min(pause_seconds, receive_run.idle))
                pause_seconds = min(pause_seconds * 2, _LONGEST_PAUSE_SECONDS)
                continue
            self.errors[name], pause_seconds, has_answered = None, _PAUSE_SECONDS, True
            for message in messages:
                with receive_run.handling(name):
                    yield from self._handle(name, message, application, receive_run, pause)

    def handle(
        self,
        name: str,
        message: ServiceBusReceivedMessage,
        application: Application,
        **waiting: Any,  # noqa: ANN401 - the keyword arguments of Deduplication.handle
    ) -> Steps[Handled]:
        """Handle one message and count its outcome."""
        if name not in self.receivers:
            raise WrongUse(f"namespace of a message: got {name!r}, expected one of {', '.join(self.receivers)}")
        handled = yield from self._deduplication.handle(self.receivers[name], message, application, **waiting)
        self.counts[name][handled] += 1
        return handled

    def _handle(
        self,
        name: str,
        message: ServiceBusReceivedMessage,
        application: Application,
        receive_run: ReceiveRun,
        pause: Callable[[float], Call],
    ) -> Steps[None]:
        """Handle a message; while the store is unavailable, renew the lock, so that no delivery is used up."""
        while True:
            try:
                yield from self.handle(name, message, application, is_over=receive_run.is_over, pause=pause)
            except StoreUnavailable as error:
                if self.errors[name] is None:
                    _LOGGER.warning("%s: waiting for the store: %s", name, error)
                self.errors[name] = error
                if receive_run.is_over():
                    return
                yield pause(_PAUSE_SECONDS)
                yield from renewed(self.receivers[name], message)
            else:
                self.errors[name] = None
                return


class DeduplicatingReceiver:
    """
    Receives from all namespaces at once, and gives each message to the application once, whichever copy comes first.

    A message is processed when the application has returned and the store has recorded it; then it is completed. If the
    application raises, the message is abandoned and delivered again, up to the queue's MaxDeliveryCount; if it raises
    `DeadLetter`, the message is dead-lettered. While one copy is processed the others wait: if it succeeds they are
    completed, if it fails the next one is processed. After *patience* a waiting copy is abandoned.

    A message is processed twice if the process dies, or the store stays unavailable, between the application's success
    and the record. The receivers are the SDK's, in peek-lock mode, for one queue or subscription of each namespace; the
    caller closes them.
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
        open_seconds: float = OPEN_SECONDS,
    ) -> None:
        """
        Receive with *receivers*, keyed by namespace name, and remember processed messages in *store*.

        A message without an *identity* is processed without being remembered, or dead-lettered. Messages before the
        *watermark* are completed without processing.
        """
        deduplication = Deduplication(
            store, identity=identity, watermark=watermark, patience=patience, without_identity=without_identity
        )
        self._receiving = Receiving(receivers, deduplication)
        self._open_seconds = open_seconds

    @property
    def counts(self) -> Mapping[str, Mapping[Handled, int]]:
        """Return the number of messages by outcome, for each namespace."""
        return self._receiving.counts

    @property
    def errors(self) -> Mapping[str, Exception | None]:
        """Return the error that each namespace retries after, None while it receives."""
        return self._receiving.errors

    def handle(self, name: str, message: ServiceBusReceivedMessage, application: Application) -> Handled:
        """
        Handle one message that was received from the namespace *name*, for an application with its own receive loop.

        Raises StoreUnavailable and leaves the message unsettled: call it again while the lock lasts.
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
        Receive until *stop* is set, or no message has arrived from any namespace for *idle* seconds.

        The application is called in one thread per namespace. A BaseException that is not an Exception ends the run.
        Raises WrongUse if an entity does not exist or requires a session that the receiver does not have.
        """
        failures: list[BaseException] = []
        receive_run = ReceiveRun(self.errors, stop.is_set, idle, self._open_seconds)

        def receive(name: str) -> None:
            try:
                run(
                    self._receiving.receive(
                        name, application, receive_run, lambda seconds: Call(lambda: stop.wait(seconds))
                    )
                )
            except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
                failures.append(error)
                receive_run.end()

        threads = {
            name: threading.Thread(target=receive, args=(name,), name=f"receive from {name}", daemon=True)
            for name in self.errors
        }
        try:
            for thread in threads.values():
                thread.start()
            while running := [
                each for name, each in threads.items() if each.is_alive() and receive_run.is_waited_for(name)
            ]:
                running[0].join(LOOK_SECONDS)
        finally:
            receive_run.end()
        if failures:
            raise failures[0]
