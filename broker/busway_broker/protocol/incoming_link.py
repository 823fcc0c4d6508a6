"""Links that the broker receives on: deliveries are assembled from frames, checked for size, and answered."""

from abc import abstractmethod

from busway_broker import errors
from busway_broker.core.transaction import Transaction
from busway_broker.errors import LinkRefusal, Refusal
from busway_broker.faults import Effect, Operation
from busway_broker.protocol.fault_effects import apply_fault
from busway_broker.protocol.link import Link
from busway_broker.protocol.link_session import LinkSession
from shared.amqp import performatives
from shared.amqp.errors import DECODE_ERROR, INVALID_FIELD, NOT_ALLOWED, AmqpError
from shared.amqp.links import Assembly
from shared.amqp.performatives import Attach, Flow, Transfer
from shared.amqp.serial import SERIAL
from shared.amqp.values import Malformed

CREDIT = 1000
BATCH_FORMAT = 0x80013700


class IncomingLink(Link):
    """
    A link on which the peer delivers.

    A delivery that is too large is dropped as it arrives, is rejected and ends the link, except to a hub; so do other
    faults of a message or its entity (`LinkRefusal`). What was sent after it gets no answer (Azure/azure-sdk-for-python
    issue 37916). Credit is granted again before it runs out, unless the peer does not read its answers; sending without
    credit ends the link. azure-servicebus ignores credit, but waits for each answer and so never runs out of it.
    """

    keeps_connection = True
    ends_when_too_large = True
    """Whether a delivery that is too large ends the link, or is only rejected."""
    operation: Operation | None = Operation.SEND
    """What a fault has to name to strike a delivery; None if it cannot."""

    def __init__(self, session: LinkSession, attach: Attach, max_message_size: int) -> None:
        super().__init__(session, attach)
        self._max_message_size = max_message_size
        self._delivery_count = attach.initial_delivery_count or 0
        self._credit = CREDIT
        self._assembly = Assembly(max_message_size)
        self._transaction_id: bytes | None = None
        self._ending: Refusal | None = None
        """Why the link ends once the delivery at fault has its answer."""

    def open(self) -> None:
        """Open the link and grant credit."""
        self.send_attach(max_message_size=self._max_message_size)
        self.session.emit_link_flow(self.handle, self._delivery_count, self._credit)

    @abstractmethod
    def accept(self, message: bytes, message_format: int) -> bytes | None:
        """Accept a message and return its outcome, None for accepted; a Refusal rejects it."""

    def enlist(self, transaction: Transaction, message: bytes, message_format: int) -> None:  # noqa: ARG002 - links to entities use them
        """Accept a message within a transaction; a Refusal rejects it."""
        raise Refusal(NOT_ALLOWED, f"{self.path}: it takes no part in transactions")

    def on_transfer(self, transfer: Transfer, payload: bytes) -> None:
        """Handle one frame of a delivery, and the whole delivery with the last frame."""
        if self.is_over:
            return
        self.use()
        assembly = self._assembly
        if assembly.first is None:
            if transfer.delivery_id is None:
                self.detach(Refusal(INVALID_FIELD, "the first transfer of a delivery has no delivery-id"))
                return
            if self._credit == 0:
                self.detach(Refusal(errors.TRANSFER_LIMIT_EXCEEDED, "the link has no credit for another delivery"))
                return
        if transfer.transaction_id is not None:
            self._transaction_id = transfer.transaction_id
        held = len(assembly.held)
        first = assembly.add(transfer, payload)
        if len(assembly.held) != held:
            self.hold(len(assembly.held) - held)
        if self.is_over or (transfer.more and not transfer.aborted):
            return
        size, transaction_id = assembly.size, self._transaction_id
        self._release_held()
        message = assembly.take(payload)
        self._transaction_id = None
        self._count()
        if transfer.aborted:
            return
        self._settle(first, message, size, transaction_id, is_settled=first.settled or transfer.settled)
        if self._ending is not None and not self.is_over:
            self.detach(self._ending)

    def hold(self, size: int) -> None:
        """Count *size* more bytes of an incomplete delivery, or fewer."""

    def _release_held(self) -> None:
        if self._assembly.held:
            self.hold(-len(self._assembly.held))

    def on_release(self) -> None:
        """Forget an incomplete delivery."""
        self._release_held()
        self._assembly = Assembly(self._max_message_size)

    def _settle(
        self, first: Transfer, message: bytes, size: int, transaction_id: bytes | None, *, is_settled: bool
    ) -> None:
        """Answer a delivery, unless the peer has settled it: then its transaction fails, or the link ends."""
        delivery_id, transaction = first.delivery_id or 0, None
        if transaction_id is not None:
            try:
                transaction = self.session.connection.transactions.find(transaction_id)
            except AmqpError as refusal:
                if is_settled:
                    self.detach(refusal)
                else:
                    self.session.emit_outcome(delivery_id, performatives.rejected(refusal), role=True)
                return
        outcome = self._answer(message, size, first.message_format or 0, transaction)
        if outcome is None or self.is_over:
            return
        if not is_settled:
            self.session.emit_outcome(delivery_id, outcome, role=True, transaction_id=transaction_id)
        elif transaction is not None and outcome != performatives.ACCEPTED_STATE:
            # The peer learns it from the answer to its commit.
            transaction.fail(Refusal(NOT_ALLOWED, f"{self.path}: a message that was sent settled was refused"))

    def _answer(
        self, message: bytes, size: int, message_format: int, transaction: Transaction | None = None
    ) -> bytes | None:
        """Return the state to settle a delivery with, None if a fault suppresses the answer."""
        fault = None
        if self.faults.is_set and self.operation is not None:
            fault = self.faults.strike(self.operation, self.path, message)
        if fault is None:
            return self._outcome(message, size, message_format, transaction)
        if fault.effect is Effect.CLOSE_LINK:
            self.detach(fault.refusal())
            return None
        if fault.effect is Effect.FILL:
            self._ending = fault.refusal()
        return apply_fault(
            fault,
            self.session.connection,
            self.path,
            lambda: self._outcome(message, size, message_format, transaction),
            performatives.rejected,
        )

    def _outcome(self, message: bytes, size: int, message_format: int, transaction: Transaction | None = None) -> bytes:
        limit = self._max_message_size
        if size > limit:
            # azure-event-hubs-python 106
            refusal = LinkRefusal(
                errors.MESSAGE_SIZE_EXCEEDED,
                f"The received message (delivery-id:{self._delivery_count}, size:{size} bytes) exceeds the limit "
                f"({limit} bytes) currently allowed on the link.",
            )
            if self.ends_when_too_large:
                self._ending = refusal
            return performatives.rejected(refusal)
        try:
            if transaction is None:
                return self.accept(message, message_format) or performatives.ACCEPTED_STATE
            self.enlist(transaction, message, message_format)
        except LinkRefusal as refusal:
            self._ending = refusal
            return performatives.rejected(refusal)
        except AmqpError as refusal:
            return performatives.rejected(refusal)
        except Malformed as malformed:
            return performatives.rejected(Refusal(DECODE_ERROR, malformed.description))
        return performatives.ACCEPTED_STATE

    def _count(self) -> None:
        self._delivery_count = (self._delivery_count + 1) & SERIAL
        self._credit -= 1
        self.pump()

    def on_flow(self, flow: Flow) -> None:
        """Answer an echo with the state of the credit; the sender's own view of it changes nothing."""
        if flow.echo and self.is_attached and not self.is_over:
            self.session.emit_link_flow(self.handle, self._delivery_count, self._credit)

    def pump(self) -> None:
        """Grant credit to a peer that reads its answers."""
        if self._credit <= CREDIT // 2 and self.session.connection.is_writable and not self.is_over:
            self._credit = CREDIT
            self.session.emit_link_flow(self.handle, self._delivery_count, self._credit)
