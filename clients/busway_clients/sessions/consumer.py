"""Processing each message once across regions, with azure.servicebus: threads, one per session."""

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
)

from busway_clients.sessions.arrivals import Arrival, arrival_of
from busway_clients.sessions.consumer_parts import (
    BEATS,
    LOCK_RENEWAL_SECONDS,
    LOG,
    Source,
    fault_of,
    is_worth_a_pause,
    receiving,
    settings_for,
    unique_name,
)
from busway_clients.sessions.drive import drive
from busway_clients.sessions.effects import (
    Commit,
    Complete,
    DeadLetter,
    Delivery,
    Effect,
    Read,
    Receive,
    Register,
    Run,
    Tell,
    Wait,
)
from busway_clients.sessions.errors import JournalError
from busway_clients.sessions.heartbeat import beat
from busway_clients.sessions.journal import Journal
from busway_clients.sessions.memory import Memory
from busway_clients.sessions.messages import Messages, visit_of
from busway_clients.sessions.plan import Worker
from busway_clients.sessions.rows import RowStore
from busway_clients.sessions.settings import Settings
from busway_clients.sessions.visit import Ending, Visit


class JournaledConsumer:
    """
    Gives each message of a queue or subscription to *apply*, once across all sites that share the journal.

    *apply* returns when the message is processed. What it raises is a failed attempt; Unprocessable faults the
    message at once. It is called from *lanes* threads, each with a session of its own. *site* is the name of this
    namespace, the same as in Busway's repl-path where Busway makes the copies. The *client* stays the caller's; make
    it with `retry_total=0`, since the consumer tries again by itself, and the SDK would add seconds of back-off to
    each wait for a session.
    """

    def __init__(
        self,
        client: ServiceBusClient,
        source: Source,
        store: RowStore,
        apply: Callable[[Delivery], None],
        *,
        site: str,
        settings: Settings | None = None,
        lanes: int = 4,
    ) -> None:
        self.settings = settings_for(source, settings or Settings())
        self.journal = Journal(store, self.settings)
        self._client = client
        self._source = source
        self._apply = apply
        self._site = site
        self._lanes = lanes
        self._memory = Memory()
        self._name = unique_name(site)
        self._visits = itertools.count(1)
        self._stopping = threading.Event()
        self._failure: JournalError | None = None
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        if kind is None:
            self.join()

    def start(self) -> None:
        """Open the journal and begin; raises JournalMismatch, JournalUnavailable and JournalRefused."""
        self.journal.open()
        self._stopping.clear()
        names = (f"{self._source}-{number}" for number in range(self._lanes))
        self._threads = [threading.Thread(target=self._lane, name=name, daemon=True) for name in names]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Begin no further message; what is being worked on is finished and settled."""
        self._stopping.set()

    def join(self) -> None:
        """Wait until all has stopped; raises what has stopped it, if it was not `stop`."""
        for thread in self._threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def run(self) -> None:
        """
        Process until `stop` is called from elsewhere.

        Raises what `start` does, and JournalRefused later too. A store that is away later is waited for.
        """
        self.start()
        self.join()

    # A lane: a receiver after the other, the messages of each

    def _lane(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    self._next_receiver()
                except Exception as error:  # noqa: BLE001 - what ends the lane is raised anew
                    if is_worth_a_pause(error, self._source, self._site):
                        self.wait(self.settings.poll_seconds)
        except JournalError as failure:
            self._failure = failure
        finally:
            # Whatever ends one lane ends all.
            self._stopping.set()

    def _next_receiver(self) -> None:
        renewer = AutoLockRenewer(max_lock_renewal_duration=LOCK_RENEWAL_SECONDS)
        with contextlib.closing(renewer), self._receiver() as receiver:
            session = receiver.session.session_id if self._source.has_sessions else None
            if self._source.has_sessions:
                renewer.register(receiver, receiver.session)
            with _Lane(self, receiver, None if self._source.has_sessions else renewer) as lane:
                ending = lane.make(visit_of(session, self.worker))
        if ending is not Ending.EMPTY:
            # The next one available may be the same again.
            self.wait(self.settings.poll_seconds)

    def _receiver(self) -> ServiceBusReceiver:
        options: dict[str, Any] = {"max_wait_time": self.settings.accept_seconds}
        if self._source.has_sessions:
            options["session_id"] = NEXT_AVAILABLE_SESSION
        if self._source.subscription is not None:
            return self._client.get_subscription_receiver(self._source.entity, self._source.subscription, **options)
        return self._client.get_queue_receiver(self._source.entity, **options)

    def arrival(self, message: ServiceBusReceivedMessage) -> Arrival:
        """Return what *message* is to the journal."""
        return arrival_of(message, self._site, self.settings.identity, self.settings.number)

    def worker(self) -> Worker:
        """Return who makes the next visit."""
        name = f"{self._name}/{next(self._visits)}"
        return Worker(name, self._site, self.settings, self._memory, is_stopping=self._stopping.is_set)

    def apply(self, delivery: Delivery) -> None:
        """Give a message to the application."""
        self._apply(delivery)

    def wait(self, seconds: float) -> None:
        """Let time pass, less if it is to stop."""
        self._stopping.wait(seconds)


class _Lane:
    """
    Makes a visit with one receiver: does what it asks for, and renews its lease meanwhile.

    *renewer* is for the locks of the messages, None where there are sessions.
    """

    def __init__(
        self, consumer: JournaledConsumer, receiver: ServiceBusReceiver, renewer: AutoLockRenewer | None
    ) -> None:
        self._consumer = consumer
        self._receiver = receiver
        self._renewer = renewer
        self._writing = threading.Lock()
        self._ended = threading.Event()
        self._visit: Visit | Messages | None = None
        self._renewing = threading.Thread(target=self._renew, daemon=True)

    def __enter__(self) -> Self:
        self._renewing.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._renewing.join()

    def make(self, visit: Visit | Messages) -> Ending:
        """Make a visit, to its end."""
        self._visit = visit
        ending: Ending = drive(visit.steps(), self._perform)
        return ending

    def _perform(self, effect: Effect) -> Any:  # noqa: ANN401 - one case per kind of effect
        journal = self._consumer.journal
        match effect:
            case Commit():
                with self._writing:
                    journal.commit(effect, time.monotonic())
            case Read():
                with self._writing:
                    return journal.read(effect)
            case Register():
                journal.register(effect)
            case Receive():
                return self._receive(effect.count)
            case Run():
                try:
                    self._consumer.apply(effect.delivery)
                except Exception as error:  # noqa: BLE001 - whatever the application raises is a failed attempt
                    return fault_of(error)
            case Complete():
                with receiving():
                    self._receiver.complete_message(effect.arrival.message)
            case DeadLetter():
                with receiving():
                    self._receiver.dead_letter_message(
                        effect.arrival.message, reason=effect.reason, error_description=effect.description
                    )
            case Wait():
                self._consumer.wait(effect.seconds)
            case Tell():
                LOG.warning("%s", effect.text)
        return None

    def _receive(self, count: int) -> Sequence[Arrival]:
        with receiving():
            messages = self._receiver.receive_messages(count, max_wait_time=self._consumer.settings.idle_seconds)
        if self._renewer is not None:
            for message in messages:
                self._renewer.register(self._receiver, message)
        return [self._consumer.arrival(message) for message in messages]

    def _renew(self) -> None:
        seconds = self._consumer.settings.heartbeat_seconds
        while not self._ended.wait(seconds / BEATS):
            if self._visit is None:
                continue
            hold = self._visit.hold
            if hold is None or hold.is_lost or not hold.needs_beat(time.monotonic(), seconds):
                continue
            try:
                drive(beat(hold), self._perform)
            except JournalError as error:
                # The visit finds out by itself; the next beat may succeed.
                LOG.warning("%s", error)
