"""
The client's end of a link: a sender with its credit, a receiver with the messages that arrive. `Assembly` is for both
ends.

Source: OASIS AMQP 1.0, part 2, section 2.6.
"""

import sys
from abc import abstractmethod
from collections.abc import Iterable

from shared.amqp import performatives
from shared.amqp.dispositions import Disposition, settlement
from shared.amqp.errors import INVALID_FIELD, ConnectionViolation
from shared.amqp.performatives import Attach, Flow, Transfer
from shared.amqp.serial import SERIAL, left_of
from shared.amqp.session import Session


class Assembly:
    """The frames of one delivery so far; beyond *limit* bytes only their size is kept."""

    __slots__ = ("_limit", "first", "held", "size")

    def __init__(self, limit: int = sys.maxsize) -> None:
        """Start without a frame."""
        self._limit = limit
        self.first: Transfer | None = None
        """The first frame, None between deliveries."""
        self.size = 0
        self.held = bytearray()

    def add(self, transfer: Transfer, payload: bytes) -> Transfer:
        """Add a frame and return the first one."""
        first = self.first
        if first is None:
            first = self.first = transfer
        self.size += len(payload)
        if self.size > self._limit:
            self.held = bytearray()
        elif transfer.more or self.held:
            self.held += payload
        return first

    def take(self, payload: bytes) -> bytes:
        """Return the message, whose last frame has the *payload*, and start again."""
        self.first, self.size = None, 0
        if not self.held:
            return payload
        message = bytes(self.held)
        self.held = bytearray()
        return message


class Link:
    """The client's end of a link; `ClientSession.attach` opens it."""

    def __init__(self, session: Session, attach: Attach) -> None:
        """Ask for the link in *attach*, whose handle is chosen by the session."""
        self.session = session
        self.own = attach
        self.is_attached = False
        self.is_closing = False
        self.failure: Exception | None = None
        """The error that ended the link, None while it is usable."""

    @property
    def name(self) -> str:
        """Return the name by which both ends know the link."""
        return self.own.name

    @property
    def handle(self) -> int:
        """Return this end's handle."""
        return self.own.handle

    def on_attach(self, peer: Attach) -> None:
        """Take the answer to the attach; without a terminus the link is refused, and a detach has the reason."""
        self.is_attached = (peer.source if self.own.role else peer.target) is not None

    @abstractmethod
    def on_flow(self, flow: Flow) -> None:
        """Take the credit that the peer grants or has left."""

    @abstractmethod
    def on_transfer(self, transfer: Transfer, payload: bytes) -> None:
        """Take one frame of a delivery."""

    def on_acceptance(self, first: int, last: int) -> None:
        """Take the acceptance of sent deliveries."""

    def on_disposition(self, found: Disposition) -> None:
        """Take another disposition."""

    def on_end(self, failure: Exception) -> None:
        """Take the error that has ended the link, once."""

    def pump(self) -> None:
        """Do what the frames allow that have arrived together."""

    def end(self, failure: Exception) -> None:
        """End the link with an error, unless it has ended."""
        if self.failure is None:
            self.failure = failure
            self.on_end(failure)

    def detach(self) -> None:
        """Close the link."""
        if not self.is_closing:
            self.is_closing = True
            self.session.drop_waiting(self.handle)
            self.session.emit(performatives.detach(self.handle, closed=True))


class Sender(Link):
    """A link on which this end sends; its deliveries have their number as tag."""

    def __init__(self, session: Session, attach: Attach) -> None:
        super().__init__(session, attach)
        self.credit = 0
        self.delivery_count = 0
        self.largest_message = 0
        """The most bytes in one message, as announced by the peer; 0 for no limit."""

    def on_attach(self, peer: Attach) -> None:
        """Take the answer to the attach."""
        self.largest_message = peer.max_message_size or 0
        super().on_attach(peer)

    def send(self, message: bytes, *, settled: bool = False) -> int:
        """Send a message, for which there must be credit, and return the number of its delivery."""
        self.credit -= 1
        self.delivery_count = (self.delivery_count + 1) & SERIAL
        session = self.session
        return session.transfer(self.own.handle, session.next_delivery_id.to_bytes(4), message, settled=settled)

    def on_flow(self, flow: Flow) -> None:
        """Take the credit that the peer grants; answer a drain or an echo."""
        self.credit = left_of(flow.link_credit or 0, flow.delivery_count or 0, self.delivery_count)
        if flow.drain:
            self.pump()
            self.delivery_count = (self.delivery_count + self.credit) & SERIAL
            self.credit = 0
        if flow.drain or flow.echo:
            self.session.answer_link_flow(self.handle, self.delivery_count, self.credit, drain=flow.drain)

    def on_transfer(self, transfer: Transfer, payload: bytes) -> None:  # noqa: ARG002 - whatever it is
        """Refuse a transfer."""
        raise ConnectionViolation(INVALID_FIELD, f"link {self.name}: a transfer to a sender")


class Receiver(Link):
    """A link on which this end receives."""

    def __init__(self, session: Session, attach: Attach) -> None:
        super().__init__(session, attach)
        self.credit = 0
        self.delivery_count = 0
        self._assembly = Assembly()

    def on_attach(self, peer: Attach) -> None:
        """Take the answer to the attach."""
        self.delivery_count = peer.initial_delivery_count or 0
        super().on_attach(peer)

    @abstractmethod
    def on_delivery(self, delivery_id: int, tag: bytes, message: bytes, *, settled: bool) -> None:
        """Take a message, which the peer may have *settled* already."""

    def grant(self, credit: int, *, drain: bool = False) -> None:
        """Set the credit to that many messages, which the peer uses up or withdraws if it is to *drain* it."""
        self.credit = credit
        self.session.emit_link_flow(self.handle, self.delivery_count, credit, drain=drain)

    def settle(self, delivery_ids: Iterable[int], state: bytes, *, settled: bool) -> None:
        """Give an encoded state to deliveries, each in a frame of its own; the peer answers unless they are settled."""
        session = self.session
        for delivery_id in delivery_ids:
            session.emit(settlement(delivery_id, state, settled=settled))

    def on_flow(self, flow: Flow) -> None:
        """Take the end of a drain, which leaves a credit of 0; answer an echo."""
        if flow.delivery_count is not None and not flow.link_credit:
            self.delivery_count = flow.delivery_count
            self.credit = 0
            self.on_drained()
        if flow.echo:
            self.session.emit_link_flow(self.handle, self.delivery_count, self.credit)

    def on_drained(self) -> None:
        """Take the end of a drain."""

    def on_transfer(self, transfer: Transfer, payload: bytes) -> None:
        """Take one frame of a delivery, and the message with its last one."""
        first = self._assembly.add(transfer, payload)
        if transfer.more and not transfer.aborted:
            return
        message = self._assembly.take(payload)
        self.credit -= 1
        self.delivery_count = (self.delivery_count + 1) & SERIAL
        if first.delivery_id is None:
            raise ConnectionViolation(INVALID_FIELD, "the first transfer of a delivery has no delivery-id")
        if not transfer.aborted:
            settled = first.settled or transfer.settled
            self.on_delivery(first.delivery_id, first.delivery_tag or b"", message, settled=settled)
