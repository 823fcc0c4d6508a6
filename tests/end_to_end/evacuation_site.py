"""Two namespaces with the same entities, and messages in every state in one of them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusMessage, ServiceBusReceiver

from busway_broker.config import NamespaceConfig
from busway_broker.core.namespace import Namespace
from busway_broker.core.session_store import SessionStore
from tests.end_to_end.dead_letter_site import DeadLetterSite

ENTITIES = """
west:
  queues:
    orders: {lock_duration: 5}
    sessions: {lock_duration: 5, requires_session: true}
    impatient:
    once:
    large: {max_message_size: 1048576}
    alone:
    closed: {status: Disabled}
    parts: {lock_duration: 5, enable_partitioning: true}
    parts-once: {enable_partitioning: true}
    parts-sessions: {lock_duration: 5, enable_partitioning: true, requires_session: true}
  topics: {news: {subscriptions: {app: {rule: {filter: replication IS NULL, action: SET replication = 1}}, b: }}}
east:
  queues:
    orders: {lock_duration: 5, max_size: 1}
    sessions: {lock_duration: 5, requires_session: true}
    impatient: {max_delivery_count: 2}
    once: {requires_duplicate_detection: true}
    large: {max_message_size: 262144}
    closed: {status: Disabled}
    parts: {lock_duration: 5, enable_partitioning: true}
    parts-once: {enable_partitioning: true, requires_duplicate_detection: true}
    parts-sessions: {lock_duration: 5, enable_partitioning: true, requires_session: true}
  topics: {news: {subscriptions: {app: {rule: {filter: replication IS NULL, action: SET replication = 1}}, b: }}}
"""
DUE = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2)


class EvacuationSite(DeadLetterSite):
    """Namespaces with administration."""

    def __init__(self, folder: Path, entities: str | Sequence[NamespaceConfig] = ENTITIES) -> None:
        super().__init__(folder, entities, has_admin=True)

    def evacuate(self, source: str, to: str = "east", *options: str, yes: bool = True) -> Any:
        """Run the command in this process."""
        return self.run("evacuate", source, "--to", to, *options, *["--yes"] * yes)

    def fill(self, queue: str, count: int, *, sessions: bool = False) -> None:
        """Put *count* messages of each kind into a queue of *west*, with the SDK."""
        with self.client("west").get_queue_sender(queue) as sender:
            for kind in ("deferred", "dead"):
                for number in range(count):  # a partitioned queue takes no batch of several sessions
                    sender.send_messages(_message(kind, number, sessions=sessions))
                for session_id in ("s-0", "s-1") if sessions else (None,):
                    options: dict[str, Any] = {} if session_id is None else {"session_id": session_id}
                    with self.receiver(f"west/{queue}", **options) as receiver:
                        _set_aside(receiver, kind)
            for number in range(count):
                sender.send_messages(_message("active", number, sessions=sessions))
            sender.schedule_messages([_message("scheduled", n, sessions=sessions) for n in range(count)], DUE)
            for session_id in ("s-0", "s-1", "empty") if sessions else ():
                with self.receiver(f"west/{queue}", session_id=session_id) as receiver:
                    receiver.session.set_state(f"state of {session_id}")

    def names(self, entity: str, site: str) -> list[str]:
        """Return the ids of the messages in an entity with their states, in their order."""

        def look(namespace: Namespace) -> list[str]:
            found = namespace.entity(entity).peek(0) if "/" not in entity else namespace.store(entity).peek(0)  # type: ignore[union-attr]
            return [f"{message.content.message_id[2:].decode()} {message.state.name.lower()}" for message in found]

        return self.broker.inspect(site, look)

    def numbers(self, entity: str, site: str) -> list[int]:
        """Return the sequence numbers of the messages in an entity."""
        return self.broker.inspect(
            site, lambda found: [message.sequence_number for message in found.store(entity).peek(0)]
        )

    def probes(self, queue: str) -> int:
        """Return how many messages without a body of ours are scheduled at the target."""
        found = self.broker.inspect(
            "east", lambda east: [message.encode() for message in east.queue(queue).incoming.peek(0)]
        )
        return sum(b"repl-number-probe" in content for content in found)

    def states(self, queue: str, site: str) -> dict[str, bytes]:
        """Return the states of sessions."""

        def look(namespace: Namespace) -> dict[str, bytes]:
            store = namespace.store(queue)
            assert isinstance(store, SessionStore)
            return {session_id: state for session_id, state, _ in store.session_states}

        return self.broker.inspect(site, look)


def _message(kind: str, number: int, *, sessions: bool) -> ServiceBusMessage:
    return ServiceBusMessage(
        f"{kind} {number}",
        message_id=f"{kind}-{number}",
        session_id=f"s-{number % 2}" if sessions else None,
        application_properties={"n": number, "big": 2**40} if number < 0 else {"n": number},
    )


def _set_aside(receiver: ServiceBusReceiver, kind: str) -> None:
    while found := receiver.receive_messages(100, max_wait_time=0.3):
        for message in found:
            if kind == "deferred":
                receiver.defer_message(message)
            else:
                reason = None if str(message.message_id).endswith("-0") else f"Reason {message.message_id}"
                receiver.dead_letter_message(message, reason=reason, error_description="because" if reason else None)


def numbers_of(names: Sequence[str], kind: str) -> list[int]:
    """Return the numbers in the ids of messages of one kind, in their order."""
    return [int(name.split()[0].partition("-")[2]) for name in names if name.startswith(kind)]
