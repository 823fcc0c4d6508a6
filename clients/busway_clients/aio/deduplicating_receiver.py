"""A receiver over several namespaces that gives each message to the application once."""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver

from busway_clients.aio.receive_run import WAIT_SECONDS, Application, ReceiveRun, join
from busway_clients.concurrency.tasks import Event, SideTask, answer_of, entered, in_thread, sleep
from busway_clients.errors import ClaimLost, DeadLetter, NotSynchronous, StoreUnavailable, WrongUse
from busway_clients.receivers.claims import Claim, LeasedStore, State, Store, renewing
from busway_clients.receivers.messages import PATIENCE, Handled, Identity, Watermark, WithoutIdentity, by_message_id
from busway_clients.senders.error_kinds import condition_of, describe

_LOGGER = logging.getLogger("busway_clients.receivers")
OPEN_SECONDS = 10.0
_LOOK_SECONDS = 0.05
_LONGEST_LOOK_SECONDS = 1.0
_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0
_LAST_ATTEMPTS = 20
_RENEW_SECONDS = 15.0
# Errors of configuration at the start. Later they may be temporary: an entity is recreated, or a namespace replaced.
_MISTAKES = {"amqp:not-found", "amqp:not-allowed"}


class DeduplicatingReceiver:
    """
    Receives from all namespaces at once, and gives each message to the application once, whichever copy comes first.

    A message is claimed in the store, one copy at a time, and given to the application. It is processed when that has
    returned and the store has recorded it; only then it is completed. After a crash before the record it is processed
    again, after a later one its next delivery is completed without processing. If the application raises, the claim is
    released, and the message is abandoned and delivered again, up to the queue's MaxDeliveryCount; if it raises
    `DeadLetter`, the message is dead-lettered. While one copy is processed the others wait: if it succeeds they are
    completed, if it fails the next one is processed. After *patience* a waiting copy is abandoned.

    A message is processed twice if the process dies, or the store stays unavailable, between the application's success
    and the record. The receivers are the SDK's, in peek-lock mode, for one queue or subscription of each namespace; the
    caller closes them.
    """

    def __init__(
        self,
        receivers: Mapping[str, ServiceBusReceiver],
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
        if without_identity not in ("process", "dead-letter"):
            raise WrongUse(f"without_identity: is {without_identity!r}, expected 'process' or 'dead-letter'")
        if not receivers:
            raise WrongUse("receivers of a receiver: got none, expected at least one namespace")
        self._receivers = dict(receivers)
        self._store = store
        self._identity = identity
        self._watermark = watermark
        # Abandoning a copy uses up one of its deliveries, so wait until the claim of a dead process has expired.
        self._patience = patience.total_seconds()
        if isinstance(store, LeasedStore):
            self._patience = max(self._patience, store.lease.total_seconds() + _LONGEST_LOOK_SECONDS)
        self._without_identity = without_identity
        self._open_seconds = open_seconds
        self._counts: dict[str, Counter[Handled]] = {name: Counter() for name in receivers}
        self._errors: dict[str, Exception | None] = dict.fromkeys(receivers)
        # Claims that ended while the store was unavailable, and whether the application succeeded.
        self._unreported: dict[Claim, bool] = {}

    @property
    def counts(self) -> Mapping[str, Mapping[Handled, int]]:
        """Return the number of messages by outcome, for each namespace."""
        return self._counts

    @property
    def errors(self) -> Mapping[str, Exception | None]:
        """Return the error that each namespace retries after, None while it receives."""
        return self._errors

    async def run(self, application: Application, stop: Event, *, idle: float | None = None) -> None:
        """
        Receive until *stop* is set, or no message has arrived from any namespace for *idle* seconds.

        The application is called concurrently, once at a time for each namespace. A BaseException that is not an
        Exception ends the run. Raises WrongUse if an entity does not exist or requires a session that the receiver does
        not have.
        """
        run = ReceiveRun(application, {*self._receivers}, stop, idle, self._open_seconds)
        tasks = {name: SideTask(partial(self._receive, name, run), f"receive from {name}") for name in self._receivers}
        await join(tasks, run.is_waited_for, run.end)

    async def handle(self, name: str, message: ServiceBusReceivedMessage, application: Application) -> Handled:
        """
        Handle one message that was received from the namespace *name*, for an application with its own receive loop.

        Raises StoreUnavailable and leaves the message unsettled: call it again while the lock lasts.
        """
        if name not in self._receivers:
            raise WrongUse(f"namespace of a message: got {name!r}, expected one of {', '.join(self._receivers)}")
        return await self._handle(name, message, ReceiveRun(application, set(), Event(), None, 0.0))

    async def _receive(self, name: str, run: ReceiveRun) -> None:
        """
        Receive from one namespace until the run is over; errors are retried.

        Raises WrongUse at the start for an entity that does not exist or does not allow this receiver.
        """
        receiver = self._receivers[name]
        pause_seconds, is_open, has_answered = _PAUSE_SECONDS, False, False
        wait = WAIT_SECONDS if run.idle is None else min(run.idle, WAIT_SECONDS)
        try:
            while not run.is_over():
                try:
                    if not is_open:
                        # Separate from the first receive, whose wait may be shorter than opening takes.
                        await entered(receiver)
                        is_open = True
                        run.note_answer(name)
                        continue
                    messages = await answer_of(receiver.receive_messages(max_message_count=1, max_wait_time=wait))
                except (AzureError, OSError) as error:
                    run.note_answer(name)
                    if not has_answered and condition_of(error) in _MISTAKES:
                        raise WrongUse(
                            f"the receiver of {name}: {describe(error)}, expected an existing entity, "
                            "and a session if the entity requires sessions"
                        ) from error
                    if self._errors[name] is None:
                        _LOGGER.warning("%s: receiving failed and is retried: %s", name, describe(error))
                    self._errors[name] = error
                    await run.pause(pause_seconds)
                    pause_seconds = min(pause_seconds * 2, _LONGEST_PAUSE_SECONDS)
                    continue
                self._errors[name], pause_seconds, has_answered = None, _PAUSE_SECONDS, True
                for message in messages:
                    with run.handling(name):
                        await self._handle_with_store(name, message, run)
        except BaseException:
            # If one namespace fails, the others end too.
            run.end()
            raise

    async def _handle_with_store(self, name: str, message: ServiceBusReceivedMessage, run: ReceiveRun) -> None:
        """
        Handle a message; while the store is unavailable, renew the lock, so that no delivery is used up.

        When the run is over, only the success of the application is recorded, if the store answers soon.
        """
        last_attempts = _LAST_ATTEMPTS
        while True:
            try:
                await self._handle(name, message, run)
            except StoreUnavailable as error:
                if self._errors[name] is None:
                    _LOGGER.warning("%s: waiting for the store: %s", name, error)
                self._errors[name] = error
                if not run.is_over():
                    await run.pause(_PAUSE_SECONDS)
                elif last_attempts and self._unreported_of(self._identity(message)):
                    last_attempts -= 1
                    await sleep(_PAUSE_SECONDS)
                else:
                    return
                await _renew(self._receivers[name], message)
            else:
                self._errors[name] = None
                return

    async def _handle(self, name: str, message: ServiceBusReceivedMessage, run: ReceiveRun) -> Handled:
        """
        Process a message, or settle it without processing.

        Raises StoreUnavailable and leaves the message unsettled. If it is handled again and the application had already
        succeeded, the application is not called again.
        """
        settling: tuple[Any, ...]
        receiver = self._receivers[name]
        identity = self._identity(message)
        if self._watermark is not None and self._watermark.is_behind(message):
            handled, settling = Handled.BEHIND, (receiver.complete_message, message)
        elif identity is None and self._without_identity == "dead-letter":
            text = "the property that identifies a message is missing"
            handled, settling = Handled.DEAD_LETTERED, (receiver.dead_letter_message, message, "NoIdentity", text)
        elif identity is None:
            handled, settling = await self._process(receiver, message, run.application, None)
        else:
            claim = await self._wait_for_claim(receiver, message, identity, run)
            if claim is State.DONE:
                handled, settling = Handled.DUPLICATE, (receiver.complete_message, message)
            elif claim is State.BUSY:
                handled, settling = Handled.BUSY, (receiver.abandon_message, message)
            else:
                with renewing(self._store, claim):
                    handled, settling = await self._process(receiver, message, run.application, claim)
        await _settle(*settling)
        self._counts[name][handled] += 1
        return handled

    async def _process(
        self,
        receiver: ServiceBusReceiver,
        message: ServiceBusReceivedMessage,
        application: Application,
        claim: Claim | None,
    ) -> tuple[Handled, tuple[Any, ...]]:
        """Give a message to the application, and return how to settle it."""
        try:
            await answer_of(application(message))
        except DeadLetter as poison:
            await self._report(claim, has_succeeded=False)
            return Handled.DEAD_LETTERED, (receiver.dead_letter_message, message, poison.reason, poison.description)
        except NotSynchronous:
            self._let_go(claim)
            raise
        except Exception as error:  # noqa: BLE001 - after any error the message is delivered again
            _LOGGER.warning(
                "message %s: abandoned, the application raised %s", message.message_id, type(error).__name__
            )
            await self._report(claim, has_succeeded=False)
            return Handled.FAILED, (receiver.abandon_message, message)
        except BaseException:
            # Cancelled or interrupted: nothing can be awaited now.
            self._let_go(claim)
            raise
        await self._report(claim, has_succeeded=True)
        return Handled.PROCESSED, (receiver.complete_message, message)

    async def _wait_for_claim(
        self, receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage, identity: str, run: ReceiveRun
    ) -> Claim | State:
        """Claim the message; while another receiver processes a copy, wait for the result."""
        started, pause_seconds = time.monotonic(), _LOOK_SECONDS
        while True:
            for claim, has_succeeded in self._unreported_of(identity):
                await self._report(claim, has_succeeded=has_succeeded)
            answer = await self._request_claim(identity)
            if answer is not State.BUSY or run.is_over() or time.monotonic() - started >= self._patience:
                return answer
            await run.pause(pause_seconds)
            pause_seconds = min(pause_seconds * 2, _LONGEST_LOOK_SECONDS)
            await _renew(receiver, message)

    async def _request_claim(self, identity: str) -> Claim | State:
        """Claim a message in the store; a thread that answers after the caller was cancelled releases the claim."""
        is_cancelled = threading.Event()
        answers: list[Claim | State] = []

        def request() -> None:
            answers.append(self._store.claim(identity, time.time()))
            if is_cancelled.is_set():
                self._let_go(*answers)

        try:
            await self._ask(request)
        except BaseException:
            is_cancelled.set()
            self._let_go(*answers)
            raise
        return answers[0]

    async def _report(self, claim: Claim | None, *, has_succeeded: bool) -> None:
        """Record or release a claim in the store; if that is unavailable, the next delivery of the message does it."""
        if claim is None:
            return
        self._unreported[claim] = has_succeeded
        try:
            if has_succeeded:
                await self._ask(self._store.record, claim, time.time())
            else:
                await self._ask(self._store.release, claim)
        except ClaimLost as lost:
            _LOGGER.warning("message %s: processed, but a copy may be too: %s", claim.identity, lost)
        self._unreported.pop(claim, None)

    def _unreported_of(self, identity: str | None) -> Sequence[tuple[Claim, bool]]:
        # A copy, since the receivers of other namespaces add and remove theirs.
        return [each for each in [*self._unreported.items()] if each[0].identity == identity]

    def _let_go(self, *claims: Claim | State | None) -> None:
        """Release claims at once: they must not outlive the work."""
        for claim in claims:
            if isinstance(claim, Claim):
                with suppress(StoreUnavailable):
                    self._store.release(claim)

    async def _ask(self, act: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401 - a method of the store
        return act(*arguments) if self._store.is_local else await in_thread(act, *arguments)


async def _renew(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> None:
    """Renew the lock on a message or its session if it ends soon; settling reports a lost lock."""
    until = message.locked_until_utc if receiver.session is None else receiver.session.locked_until_utc
    if until is None or until - datetime.now(UTC) > timedelta(seconds=_RENEW_SECONDS):
        return
    if receiver.session is None:
        await _settle(receiver.renew_message_lock, message)
    else:
        await _settle(receiver.session.renew_lock)


async def _settle(act: Callable[..., Any], *arguments: Any) -> None:  # noqa: ANN401 - of a method of the SDK
    """Settle a message; if that fails it is delivered again, and the store's record decides what happens to it."""
    try:
        await answer_of(act(*arguments))
    except (AzureError, OSError, ValueError) as error:
        _LOGGER.warning("a message could not be settled and will be delivered again: %s", type(error).__name__)
