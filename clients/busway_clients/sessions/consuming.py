"""The steps of a consumer: what its lanes do with their receivers, and how a lease is renewed meanwhile."""

import itertools
import time
from collections.abc import Callable
from typing import Any

from azure.servicebus import NEXT_AVAILABLE_SESSION

from busway_clients.sessions.effects import (
    Commit,
    Complete,
    DeadLetter,
    Delivery,
    Effect,
    Log,
    Read,
    Receive,
    Register,
    Run,
    Wait,
)
from busway_clients.sessions.errors import JournalError
from busway_clients.sessions.failures import LOG, fault_of, lock_lost_on_error, must_pause
from busway_clients.sessions.heartbeat import renew
from busway_clients.sessions.journal import Journaling
from busway_clients.sessions.message_work import work_for
from busway_clients.sessions.plan import Worker
from busway_clients.sessions.received import Arrival, arrival_of
from busway_clients.sessions.rows import AsyncRowStore, RowStore
from busway_clients.sessions.session_work import EffectSteps, Ending
from busway_clients.sessions.settings import Settings
from busway_clients.sessions.source import Source, settings_for, unique_name
from busway_clients.sessions.worker_cache import WorkerCache
from busway_clients.steps import Call, Lock, Steps, holding

LOCK_RENEWAL_SECONDS = 24 * 3600.0
"""For how long the locks of Service Bus are renewed; a message is kept while another region works on its copy."""
CHECKS_PER_HEARTBEAT = 3


class Consuming:
    """
    The logic of both consumers.

    Shape:  apply gives a delivery to the application, and wait lets time pass, less if the consumer stops; both may
            return an awaitable.
    """

    def __init__(
        self,
        client: Any,  # noqa: ANN401 - a client of the SDK, of either kind
        source: Source,
        store: RowStore | AsyncRowStore,
        apply: Callable[[Delivery], Any],
        *,
        site: str,
        settings: Settings | None,
        is_stopping: Callable[[], bool],
        wait: Callable[[float], Any],
    ) -> None:
        self.settings = settings_for(source, settings or Settings())
        self.journaling = Journaling(store, self.settings)
        self.apply = apply
        self.wait = wait
        self.source = source
        self._client = client
        self._site = site
        self._is_stopping = is_stopping
        self._cache = WorkerCache()
        self._name = unique_name(site)
        self._numbers = itertools.count(1)

    def work(self, use_receiver: Callable[[], Any]) -> Steps[None]:
        """Use one receiver after the other until the consumer stops; raises JournalError if it cannot continue."""
        while not self._is_stopping():
            try:
                ending: Ending = yield Call(use_receiver)
            except Exception as error:  # noqa: BLE001 - raised again if it ends the lane
                is_pause = must_pause(error, self.source, self._site)
            else:
                # The next available session may be the same one.
                is_pause = ending is not Ending.EMPTY
            if is_pause:
                yield Call(lambda: self.wait(self.settings.poll_seconds))

    def receiver(self) -> Any:  # noqa: ANN401 - a receiver of the SDK, of either kind
        """Return a new receiver, for the next available session if there are sessions."""
        options: dict[str, Any] = {"max_wait_time": self.settings.accept_seconds}
        if self.source.has_sessions:
            options["session_id"] = NEXT_AVAILABLE_SESSION
        if self.source.subscription is not None:
            return self._client.get_subscription_receiver(self.source.entity, self.source.subscription, **options)
        return self._client.get_queue_receiver(self.source.entity, **options)

    def arrival(self, message: Any) -> Arrival:  # noqa: ANN401 - a message of the SDK
        """Return what the journal needs to know of a received message."""
        return arrival_of(message, self._site, self.settings.identity, self.settings.number)

    def worker(self) -> Worker:
        """Return a worker with a new name."""
        name = f"{self._name}/{next(self._numbers)}"
        return Worker(name, self._site, self.settings, self._cache, is_stopping=self._is_stopping)


class Lane:
    """
    The work with one receiver: performs the effects that the work yields.

    Shape:  renewer is the SDK's AutoLockRenewer, of either kind; lock keeps the heartbeat and the work from writing at
            the same time.
    """

    def __init__(self, consuming: Consuming, receiver: Any, renewer: Any, lock: Lock) -> None:  # noqa: ANN401 - the SDK's
        self._consuming = consuming
        self._receiver = receiver
        self._renewer = renewer
        self._lock = lock
        has_sessions = consuming.source.has_sessions
        self._renews_messages = not has_sessions
        if has_sessions:
            renewer.register(receiver, receiver.session)
        self._work = work_for(receiver.session.session_id if has_sessions else None, consuming.worker)

    @property
    def check_seconds(self) -> float:
        """How often to check whether the lease must be renewed."""
        return self._consuming.settings.heartbeat_seconds / CHECKS_PER_HEARTBEAT

    def steps(self) -> Steps[Ending]:
        """Do the work with the receiver until it ends."""
        ending: Ending = yield from self._perform_all(self._work.steps())
        return ending

    def renew_lease_if_due(self) -> Steps[None]:
        """Renew the lease if the last write is old."""
        held = self._work.held_lease
        seconds = self._consuming.settings.heartbeat_seconds
        if held is None or held.is_lost or not held.must_renew(time.monotonic(), seconds):
            return
        try:
            yield from self._perform_all(renew(held))
        except JournalError as error:
            # The work detects a lost lease itself, and the next renewal may succeed.
            LOG.warning("%s", error)

    def _perform_all(self, work: EffectSteps) -> Steps[Any]:
        try:
            effect = next(work)
            while True:
                try:
                    answer = yield from self._perform(effect)
                except Exception as error:  # noqa: BLE001 - the work decides what to do about it
                    effect = work.throw(error)
                else:
                    effect = work.send(answer)
        except StopIteration as end:
            return end.value

    def _perform(self, effect: Effect) -> Steps[Any]:
        journaling = self._consuming.journaling
        match effect:
            case Commit():
                yield from holding(self._lock, journaling.commit(effect, time.monotonic))
            case Read():
                return (yield from holding(self._lock, journaling.read(effect)))
            case Register():
                yield from journaling.register(effect)
            case Receive():
                return (yield from self._receive(effect.count))
            case Run():
                try:
                    yield Call(lambda: self._consuming.apply(effect.delivery))
                except Exception as error:  # noqa: BLE001 - whatever the application raises is a failed attempt
                    return fault_of(error)
            case Complete():
                with lock_lost_on_error():
                    yield Call(lambda: self._receiver.complete_message(effect.arrival.message))
            case DeadLetter():
                with lock_lost_on_error():
                    yield Call(
                        lambda: self._receiver.dead_letter_message(
                            effect.arrival.message, reason=effect.reason, error_description=effect.description
                        )
                    )
            case Wait():
                yield Call(lambda: self._consuming.wait(effect.seconds))
            case Log():
                LOG.warning("%s", effect.text)
        return None

    def _receive(self, count: int) -> Steps[list[Arrival]]:
        seconds = self._consuming.settings.idle_seconds
        with lock_lost_on_error():
            messages = yield Call(lambda: self._receiver.receive_messages(count, max_wait_time=seconds))
        if self._renews_messages:
            for message in messages:
                self._renewer.register(self._receiver, message)
        return [self._consuming.arrival(message) for message in messages]
