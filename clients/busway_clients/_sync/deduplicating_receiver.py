# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
"""A receiver over several namespaces that gives each message to the application once."""

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from functools import partial

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusReceivedMessage

from busway_clients._sync.deduplication import LOGGER, Application, Deduplication, Pause, renewed
from busway_clients.concurrency.threads import Event, SideTask, answer_of, entered, is_set_within
from busway_clients.errors import StoreUnavailable, WrongUse
from busway_clients.receivers.messages import (
    PATIENCE,
    Handled,
    Identity,
    SdkReceiver,
    Watermark,
    WithoutIdentity,
    by_message_id,
)
from busway_clients.receivers.run import OPEN_SECONDS, WAIT_SECONDS, ReceiveRun
from busway_clients.receivers.stores.store import Store
from busway_clients.senders.error_kinds import condition_of, describe

_LOOK_SECONDS = 0.05
_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0
# Errors of configuration at the start. Later they may be temporary: an entity is recreated, or a namespace replaced.
_MISTAKES = {"amqp:not-found", "amqp:not-allowed"}


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
        self._deduplication = Deduplication(
            store, identity=identity, watermark=watermark, patience=patience, without_identity=without_identity
        )
        if not receivers:
            raise WrongUse("receivers of a receiver: got none, expected at least one namespace")
        self._receivers = dict(receivers)
        self._counts: dict[str, Counter[Handled]] = {name: Counter() for name in receivers}
        self._errors: dict[str, Exception | None] = dict.fromkeys(receivers)
        self._open_seconds = open_seconds

    @property
    def counts(self) -> Mapping[str, Mapping[Handled, int]]:
        """Return the number of messages by outcome, for each namespace."""
        return self._counts

    @property
    def errors(self) -> Mapping[str, Exception | None]:
        """Return the error that each namespace retries after, None while it receives."""
        return self._errors

    def handle(self, name: str, message: ServiceBusReceivedMessage, application: Application) -> Handled:
        """
        Handle one message that was received from the namespace *name*, for an application with its own receive loop.

        Raises StoreUnavailable and leaves the message unsettled: call it again while the lock lasts.
        """
        if name not in self._receivers:
            raise WrongUse(f"namespace of a message: got {name!r}, expected one of {', '.join(self._receivers)}")
        handled = self._deduplication.handle(self._receivers[name], message, application)
        self._counts[name][handled] += 1
        return handled

    def run(self, application: Application, stop: Event, *, idle: float | None = None) -> None:
        """
        Receive until *stop* is set, or no message has arrived from any namespace for *idle* seconds.

        The application is called concurrently, once at a time for each namespace. A BaseException that is not an
        Exception ends the run. Raises WrongUse if an entity does not exist or requires a session that the receiver does
        not have.
        """
        receive_run = ReceiveRun(self._errors, stop.is_set, idle, self._open_seconds)
        tasks = {
            name: SideTask(partial(self._receive, name, application, receive_run, stop), f"receive from {name}")
            for name in self._receivers
        }
        try:
            while running := [
                task for name, task in tasks.items() if not task.is_done and receive_run.is_waited_for(name)
            ]:
                running[0].wait(_LOOK_SECONDS)
            ended = [task for task in tasks.values() if task.is_done]
        finally:
            receive_run.end()
            for task in tasks.values():
                task.abandon()
        for failure in [task.error for task in ended]:
            if failure is not None:
                raise failure

    def _receive(self, name: str, application: Application, receive_run: ReceiveRun, stop: Event) -> None:
        """
        Receive from one namespace until the run is over; errors are retried.

        Raises WrongUse at the start for an entity that does not exist or does not allow this receiver.
        """
        pause = partial(is_set_within, stop)
        receiver = self._receivers[name]
        pause_seconds, is_open, has_answered = _PAUSE_SECONDS, False, False
        wait = WAIT_SECONDS if receive_run.idle is None else min(receive_run.idle, WAIT_SECONDS)
        try:
            while not receive_run.is_over():
                try:
                    if not is_open:
                        # Separate from the first receive, whose wait may be shorter than opening takes.
                        entered(receiver)
                        is_open = True
                        receive_run.note_answer(name)
                        continue
                    messages = answer_of(receiver.receive_messages(max_message_count=1, max_wait_time=wait))
                except (AzureError, OSError) as error:
                    receive_run.note_answer(name)
                    if not has_answered and condition_of(error) in _MISTAKES:
                        raise WrongUse(
                            f"the receiver of {name}: {describe(error)}, expected an existing entity, "
                            "and a session if the entity requires sessions"
                        ) from error
                    if self._errors[name] is None:
                        LOGGER.warning("%s: receiving failed and is retried: %s", name, describe(error))
                    self._errors[name] = error
                    pause(pause_seconds if receive_run.idle is None else min(pause_seconds, receive_run.idle))
                    pause_seconds = min(pause_seconds * 2, _LONGEST_PAUSE_SECONDS)
                    continue
                self._errors[name], pause_seconds, has_answered = None, _PAUSE_SECONDS, True
                for message in messages:
                    with receive_run.handling(name):
                        self._handle_with_store(name, message, application, receive_run, pause)
        except BaseException:
            # If one namespace fails, the others end too.
            receive_run.end()
            raise

    def _handle_with_store(
        self,
        name: str,
        message: ServiceBusReceivedMessage,
        application: Application,
        receive_run: ReceiveRun,
        pause: Pause,
    ) -> None:
        """Handle a message; while the store is unavailable, renew the lock, so that no delivery is used up."""
        receiver = self._receivers[name]
        while True:
            try:
                handled = self._deduplication.handle(
                    receiver, message, application, is_over=receive_run.is_over, pause=pause
                )
            except StoreUnavailable as error:
                if self._errors[name] is None:
                    LOGGER.warning("%s: waiting for the store: %s", name, error)
                self._errors[name] = error
                if receive_run.is_over():
                    return
                pause(_PAUSE_SECONDS)
                renewed(receiver, message)
            else:
                self._counts[name][handled] += 1
                self._errors[name] = None
                return
