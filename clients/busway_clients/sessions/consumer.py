"""A consumer that processes each message once across regions, with a thread for each session."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self

from azure.servicebus import AutoLockRenewer, ServiceBusClient

from busway_clients.sessions.consuming import LOCK_RENEWAL_SECONDS, Consuming, Lane
from busway_clients.sessions.effects import Delivery
from busway_clients.sessions.errors import JournalError
from busway_clients.sessions.journal import Journal
from busway_clients.sessions.rows import RowStore
from busway_clients.sessions.session_work import Ending
from busway_clients.sessions.settings import Settings
from busway_clients.sessions.source import Source
from busway_clients.steps import run


class JournaledConsumer:
    """
    Gives each message of a queue or subscription to *apply*, once across all sites that share the journal.

    *apply* returns when the message is processed. An exception is a failed attempt; Unprocessable faults the message
    at once. It is called in *lanes* threads, each with a session of its own. *site* is the name of this namespace, the
    same as in Busway's repl-path if Busway makes the copies. The caller closes the *client*; create it with
    `retry_total=0`, since the consumer retries itself, and the SDK would add seconds of back-off to each wait for a
    session.
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
        self._stopping = threading.Event()
        self._consuming = Consuming(
            client,
            source,
            store,
            apply,
            site=site,
            settings=settings,
            is_stopping=self._stopping.is_set,
            wait=self._stopping.wait,
        )
        self.settings = self._consuming.settings
        self.journal = Journal(store, self.settings)
        self._lanes = lanes
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
        """Open the journal and start; raises JournalMismatch, JournalUnavailable and JournalRefused."""
        self.journal.open()
        self._stopping.clear()
        names = (f"{self._consuming.source}-{number}" for number in range(self._lanes))
        self._threads = [threading.Thread(target=self._lane, name=name, daemon=True) for name in names]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Start no further message; those in progress are finished and settled."""
        self._stopping.set()

    def join(self) -> None:
        """Wait until all lanes have stopped; raises the error that stopped them, if any."""
        for thread in self._threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def run(self) -> None:
        """
        Process messages until another thread calls `stop`.

        Raises what `start` raises, and JournalRefused later too. While the store is unavailable later, it waits.
        """
        self.start()
        self.join()

    def _lane(self) -> None:
        try:
            run(self._consuming.work(self._use_receiver))
        except JournalError as failure:
            self._failure = failure
        finally:
            # When one lane ends, all end.
            self._stopping.set()

    def _use_receiver(self) -> Ending:
        renewer = AutoLockRenewer(max_lock_renewal_duration=LOCK_RENEWAL_SECONDS)
        with contextlib.closing(renewer), self._consuming.receiver() as receiver:
            lane = Lane(self._consuming, receiver, renewer, threading.Lock())
            with _renewing(lane):
                return run(lane.steps())


@contextlib.contextmanager
def _renewing(lane: Lane) -> Iterator[None]:
    """Renew the lease of a lane in a thread."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(lane.check_seconds):
            run(lane.renew_lease_if_due())

    thread = threading.Thread(target=renew, name="busway-renew-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
