# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
"""The work with one receiver: what it asks of the SDK, of the journal and of the application."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from busway_clients._sync.sessions.journal import Journal
from busway_clients.concurrency.threads import Lock, answer_of
from busway_clients.errors import NotSynchronous
from busway_clients.sessions.delivery import Delivery, Fault, fault_of, lock_lost_on_error
from busway_clients.sessions.entries import Entry
from busway_clients.sessions.leases import HeldLease, Record
from busway_clients.sessions.order import Arrival, arrival_of


@dataclass(eq=False)
class Lane:
    """
    One receiver of a consumer, its journal and its application.

    Shape:  renewer is the SDK's AutoLockRenewer; apply gives a delivery to the application, during which *applying* has
            the lane; wait lets time pass, less if the consumer stops.
    """

    receiver: Any
    renewer: Any
    journal: Journal
    apply: Callable[[Delivery], object]
    applying: set["Lane"]
    site: str
    wait: Callable[[float], object]
    session_id: str | None = None
    # Keeps the heartbeat and the work from writing at the same time.
    writing: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        """Take the session of the receiver, and renew its lock."""
        self.register = self.journal.register
        if self.receiver.session is not None:
            self.session_id = str(self.receiver.session.session_id)
            self.renewer.register(self.receiver, self.receiver.session)

    def receive(self, count: int) -> Sequence[Arrival]:
        """Return received messages, none if none arrived for a while; raises LockLost."""
        settings = self.journal.settings
        with lock_lost_on_error():
            messages = answer_of(self.receiver.receive_messages(count, max_wait_time=settings.idle_seconds))
        if self.session_id is None:
            for message in messages:
                self.renewer.register(self.receiver, message)
        return [arrival_of(message, self.site, settings.identity, settings.number) for message in messages]

    def read(self, partition: str, message_ids: Sequence[str]) -> Record:
        """Return the record of a partition; raises JournalMalformed."""
        with self.writing:
            return self.journal.read(partition, message_ids)

    def commit(
        self, held: HeldLease, changes: Mapping[str, Any], entries: Sequence[Entry], *, is_renewal: bool = False
    ) -> None:
        """Write a lease with its entries, as `Journal.commit`."""
        with self.writing:
            self.journal.commit(held, changes, entries, is_renewal=is_renewal)

    def run(self, delivery: Delivery) -> Fault | None:
        """Give a message to the application; return the failure that it ended with, None for success."""
        self.applying.add(self)
        try:
            answer_of(self.apply(delivery))
        except NotSynchronous:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the application raises is a failed attempt
            return fault_of(error)
        finally:
            self.applying.discard(self)
        return None

    def complete(self, arrival: Arrival) -> None:
        """Complete a message at its namespace; raises LockLost."""
        with lock_lost_on_error():
            answer_of(self.receiver.complete_message(arrival.message))

    def dead_letter(self, arrival: Arrival, reason: str, description: str) -> None:
        """Dead-letter a message at its namespace; raises LockLost."""
        with lock_lost_on_error():
            dead_letter = self.receiver.dead_letter_message
            answer_of(dead_letter(arrival.message, reason=reason, error_description=description))
