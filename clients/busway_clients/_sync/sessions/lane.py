# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
"""The work with one receiver: what it asks of the SDK, of the journal and of the application."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from busway_clients._sync.sessions.journal import Journal
from busway_clients.concurrency.threads import Lock, answer_of
from busway_clients.errors import NotSynchronous
from busway_clients.sessions.arrival import Arrival, arrival_of
from busway_clients.sessions.delivery import Delivery, Fault, fault_of, lock_lost_on_error
from busway_clients.sessions.entries import Entry
from busway_clients.sessions.leases import HeldLease, Record


class Lane:
    """
    One receiver of a consumer, its journal and its application.

    Shape:  renewer is the SDK's AutoLockRenewer; apply gives a delivery to the application; wait lets time pass, less
            if the consumer stops; register is that of the journal.
    """

    def __init__(
        self,
        receiver: Any,  # noqa: ANN401 - the SDK's
        renewer: Any,  # noqa: ANN401 - the SDK's
        journal: Journal,
        apply: Callable[[Delivery], None],
        *,
        site: str,
        wait: Callable[[float], object],
    ) -> None:
        self.session_id: str | None = None
        self._receiver = receiver
        self._renewer = renewer
        self._journal = journal
        self._apply = apply
        self._site = site
        self._settings = journal.settings
        self.wait = wait
        self.register = journal.register
        # Keeps the heartbeat and the work from writing at the same time.
        self._writing = Lock()
        if receiver.session is not None:
            self.session_id = str(receiver.session.session_id)
            renewer.register(receiver, receiver.session)

    def receive(self, count: int) -> Sequence[Arrival]:
        """Return received messages, none if none arrived for a while; raises LockLost."""
        with lock_lost_on_error():
            messages = answer_of(self._receiver.receive_messages(count, max_wait_time=self._settings.idle_seconds))
        if self.session_id is None:
            for message in messages:
                self._renewer.register(self._receiver, message)
        settings = self._settings
        return [arrival_of(message, self._site, settings.identity, settings.number) for message in messages]

    def read(self, partition: str, message_ids: Sequence[str]) -> Record:
        """Return the record of a partition; raises JournalMalformed."""
        with self._writing:
            return self._journal.read(partition, message_ids)

    def commit(
        self, held: HeldLease, changes: Mapping[str, Any], entries: Sequence[Entry], *, is_renewal: bool = False
    ) -> None:
        """Write a lease with its entries, as `Journal.commit`."""
        with self._writing:
            self._journal.commit(held, changes, entries, is_renewal=is_renewal)

    def run(self, delivery: Delivery) -> Fault | None:
        """Give a message to the application; return the failure that it ended with, None for success."""
        try:
            answer_of(self._apply(delivery))
        except NotSynchronous:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the application raises is a failed attempt
            fault: Fault = fault_of(error)
            return fault
        return None

    def complete(self, arrival: Arrival) -> None:
        """Complete a message at its namespace; raises LockLost."""
        with lock_lost_on_error():
            answer_of(self._receiver.complete_message(arrival.message))

    def dead_letter(self, arrival: Arrival, reason: str, description: str) -> None:
        """Dead-letter a message at its namespace; raises LockLost."""
        with lock_lost_on_error():
            answer_of(self._receiver.dead_letter_message(arrival.message, reason=reason, error_description=description))
