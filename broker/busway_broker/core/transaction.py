"""
Transactions: work that is carried out together or not at all.

1. A transaction belongs to a connection, and ends with the link that declared it or `TIME_OUT` after its first work:
   then none of it is done.
2. All its work is on one top-level entity: a queue, or a topic with its subscriptions, and on one partition of it.
   Messages to other entities are transferred by that entity, if their links say so: with a destination of their own, or
   in an AMQP session whose first link was one to the coordinator.
3. Until the commit a message that was sent is nowhere, and one that was settled stays locked. A commit checks all
   work before it does any: if a lock was lost or an entity is full or gone, nothing is done.

Sources: OASIS AMQP 1.0, part 4; Microsoft Learn, "Overview of Service Bus transaction processing" and "Service Bus
quotas"; the live tests of Azure.Messaging.ServiceBus for .NET (TransactionLiveTests).
"""

import uuid
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from busway_broker import errors
from busway_broker.core.namespace import Namespace
from busway_broker.core.sequence_numbers import Part
from busway_broker.core.times import milliseconds
from busway_broker.errors import Refusal
from shared.amqp.errors import NOT_ALLOWED, AmqpError

TIME_OUT = 120_000
"""Milliseconds from the first work of a transaction to its end."""
MAX_SENT = 100
MAX_OPEN = 1000


@dataclass(frozen=True, slots=True)
class Work:
    """
    One piece of work: *check* raises a Refusal if it is not possible now, and if it is, *carry_out* never fails.

    A *subject* is what it changes, such as a lock: a transaction changes it once. The *parts* are the
    partitions that it is on, in a partitioned entity: a transaction is on one.
    """

    check: Callable[[], object]
    carry_out: Callable[[], object]
    subject: Hashable = None
    parts: frozenset[Part] = frozenset()


class Transaction:
    """
    The work of one transaction, on one top-level entity.

    Units: deadline in milliseconds since 1970 UTC, None before the first work.
    """

    def __init__(self, controller: object, start: Callable[[], int]) -> None:
        """Call *start* at the first work for the deadline; *controller* is the link that has declared it."""
        self.transaction_id = uuid.uuid4().hex.encode()
        self.controller = controller
        self.deadline: int | None = None
        self._start = start
        self._entity: str | None = None
        self._work: list[Work] = []
        self._subjects: set[Hashable] = set()
        self._parts: set[Part] = set()
        self._sent = 0
        self._failure: AmqpError | None = None

    def enlist(self, entity: str, work: Sequence[Work], *, sent: int = 0) -> None:
        """
        Add work on a top-level *entity* (in lower case), which sends *sent* messages: all of it or none.

        Raises: a Refusal if it is not possible now, is on another entity or partition, or sends too many messages.
        """
        if self._entity is not None and entity != self._entity:
            raise spans_entities(self._entity)
        if self._sent + sent > MAX_SENT:
            # Not an invalid operation to clients: Particular/NServiceBus.Transport.AzureServiceBus pull request 669.
            raise Refusal(errors.INTERNAL_ERROR, f"Cannot send more than {MAX_SENT} messages in a single transaction.")
        parts = self._parts.union(*(each.parts for each in work))
        keys = {part.key for part in parts if part.key is not None}
        if len({part.partition for part in parts}) > 1 or len(keys) > 1:
            # Azure/azure-sdk-for-net issue 18160
            raise Refusal(NOT_ALLOWED, "Local transactions cannot span multiple entities or partitions.")
        given = [each.subject for each in work if each.subject is not None]
        subjects = set(given)
        if len(subjects) < len(given) or not self._subjects.isdisjoint(subjects):
            raise Refusal(errors.MESSAGE_LOCK_LOST, f"{entity}: the message was already settled in this transaction")
        for each in work:
            each.check()
        if self._entity is None:
            self._entity = entity
            self.deadline = self._start()
        self._work += work
        self._subjects.update(subjects)
        self._parts = parts
        self._sent += sent

    def fail(self, refusal: AmqpError) -> None:
        """Make a commit impossible."""
        self._failure = refusal

    def commit(self) -> None:
        """Carry out all work; Refusal(TRANSACTION_ROLLBACK), and none of it is done, if some is no longer possible."""
        try:
            self._check()
        except AmqpError as refusal:
            raise Refusal(
                errors.TRANSACTION_ROLLBACK, f"The transaction was rolled back: {refusal.description}"
            ) from refusal
        for each in self._work:
            each.carry_out()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
        for each in self._work:
            each.check()


class Transactions:
    """The open transactions of one connection."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._open: dict[bytes, Transaction] = {}

    def declare(self, controller: object) -> Transaction:
        """Begin a transaction, which ends with *controller* at the latest."""
        if len(self._open) >= MAX_OPEN:
            raise Refusal(errors.RESOURCE_LIMIT_EXCEEDED, f"the connection has {MAX_OPEN} open transactions already")
        transaction = Transaction(controller, self._start)
        self._open[transaction.transaction_id] = transaction
        return transaction

    def _start(self) -> int:
        deadline = milliseconds(self._namespace.clock) + TIME_OUT
        self._namespace.timers.set(self, deadline)
        return deadline

    def find(self, transaction_id: bytes) -> Transaction:
        """Return an open transaction; Refusal(UNKNOWN_TRANSACTION) if no open one has this id."""
        transaction = self._open.get(transaction_id)
        if transaction is None:
            raise Refusal(
                errors.UNKNOWN_TRANSACTION,
                "Transaction hasn't been declared yet, or has already been discharged. It may have timed out, "
                f"{TIME_OUT // 1000} s after its first operation.",
            )
        return transaction

    def discharge(self, transaction_id: bytes, *, fail: bool) -> None:
        """Commit a transaction, or roll it back if it is to *fail*; a Refusal if it is unknown or rolled back."""
        transaction = self.find(transaction_id)
        del self._open[transaction_id]
        if not fail:
            transaction.commit()

    def end_all(self, controller: object) -> None:
        """Roll back the open transactions that *controller* has declared."""
        self._open = {
            key: transaction for key, transaction in self._open.items() if transaction.controller is not controller
        }

    def advance(self, now: int) -> int | None:
        """Roll back the transactions whose time is over; see `Timed`."""
        self._open = {
            key: transaction
            for key, transaction in self._open.items()
            if transaction.deadline is None or transaction.deadline > now
        }
        deadlines = (transaction.deadline for transaction in self._open.values())
        return min((at for at in deadlines if at is not None), default=None)


class TransactionScope:
    """
    The entity that the links of one AMQP session have in common for transactions.

    If its first link is one to the coordinator, that is the entity of the next link: receivers are then limited to it,
    and it transfers what senders send to others in a transaction. Otherwise each link has its own.
    """

    def __init__(self) -> None:
        self._is_common: bool | None = None
        self._entity: str | None = None

    def add_coordinator(self) -> None:
        """Note a link to the coordinator."""
        if self._is_common is None:
            self._is_common = True

    def add(self, entity: str, *, receives: bool) -> str:
        """Return the entity that operations of a new link are on; Refusal(NOT_ALLOWED) for a receiver from another."""
        if not self._is_common:
            self._is_common = False
            return entity
        if self._entity is None:
            self._entity = entity
        elif receives and entity != self._entity:
            raise spans_entities(self._entity)
        return self._entity


def spans_entities(entity: str) -> Refusal:
    """Return the refusal of an operation on another entity than the transaction's."""
    return Refusal(
        NOT_ALLOWED,
        "Local transactions cannot span multiple top-level entities such as queue or topic. "
        f"The entity of this one is '{entity}'.",
    )
