"""Links that the broker sends on."""

from busway_broker.errors import Refusal
from busway_broker.faults import Effect, Operation
from busway_broker.protocol.fault_effects import apply_fault
from busway_broker.protocol.link import Link
from busway_broker.protocol.link_session import LinkSession
from shared.amqp.dispositions import Disposition
from shared.amqp.errors import NOT_IMPLEMENTED
from shared.amqp.performatives import Attach, Flow
from shared.amqp.serial import SERIAL, left_of
from shared.amqp.values import Value

_SETTLED = 1
TAG_SIZE = 16
"""The bytes of a delivery tag: a lock token, or a number."""


class OutgoingLink(Link):
    """A link on which the peer grants credit and the broker delivers."""

    keeps_connection = True

    def __init__(self, session: LinkSession, attach: Attach) -> None:
        super().__init__(session, attach)
        self._credit = 0
        self._delivery_count = 0
        self._sends_settled = attach.send_settle_mode == _SETTLED
        self._early_flow: Flow | None = None

    def send_attach(self, *, max_message_size: int | None = None, properties: Value | None = None) -> None:
        """Send the attach that opens the link, and apply a flow that has arrived before."""
        super().send_attach(max_message_size=max_message_size, properties=properties)
        flow, self._early_flow = self._early_flow, None
        if flow is not None:
            self.on_flow(flow)

    def can_take(self) -> bool:
        """Return whether one more message can be sent now."""
        if self._credit <= 0 or not self.session.can_send():
            return False
        return not self.faults.is_set or self._passes_faults()

    def _passes_faults(self) -> bool:
        """Return whether a message may be sent, given the faults that are set."""
        fault = self.faults.strike(Operation.TRANSFER, self.path)
        if fault is None:
            return True
        if fault.effect is Effect.CLOSE_LINK:
            self.detach(fault.refusal())
            return False
        passes = apply_fault(fault, self.session.connection, self.path, lambda: True, self._refuse_transfer)
        # The message is lost with the connection: for the entity it was sent.
        is_lost_on_the_way = fault.effect is Effect.DROP_CONNECTION and fault.takes_effect
        return bool(passes) or is_lost_on_the_way

    def _refuse_transfer(self, refusal: Refusal) -> bool:
        self.detach(refusal)
        return False

    def send(self, tag: bytes, message: bytes, *, settled: bool) -> None:
        """Send a message."""
        self._credit -= 1
        self._delivery_count = (self._delivery_count + 1) & SERIAL
        self.session.send(self, tag, message, settled=settled)

    def on_flow(self, flow: Flow) -> None:
        """
        Handle the credit that the peer grants; answer a drain or an echo.

        A flow may arrive before the answer to the attach (AMQP 1.0, part 2, 2.6.3): .NET sends both together. It
        applies once the link is attached; of several, the last one has the state.
        """
        if self.is_over:
            return
        if not self.is_attached:
            self._early_flow = flow
            return
        if flow.has_transaction:
            self.detach(Refusal(NOT_IMPLEMENTED, "transactional acquisition is not supported by this broker"))
            return
        if flow.link_credit is not None:
            # Credit counts from the peer's delivery count: messages in flight have used some of it already.
            self._credit = left_of(flow.link_credit, flow.delivery_count or 0, self._delivery_count)
        self.pump()
        if flow.drain:
            self._delivery_count = (self._delivery_count + self._credit) & SERIAL
            self._credit = 0
            fault = self.faults.strike(Operation.DRAIN, self.path) if self.faults.is_set else None
            if fault is not None and fault.effect is not Effect.DELAY:
                # The answer is all that is left to do.
                if fault.effect is Effect.DROP_CONNECTION:
                    self.session.connection.drop()
                return
            if fault is not None:
                self.session.connection.delay_output(fault.delay)
        if flow.drain or flow.echo:
            self.session.answer_link_flow(self.handle, self._delivery_count, self._credit, drain=flow.drain)

    def accept(self, tag: bytes) -> bool:  # noqa: ARG002 - consumer links use the tag
        """Complete a delivery; return False, and do nothing, if `settle` has to find out what happens."""
        return False

    def settle(self, delivery_id: int, tag: bytes, disposition: Disposition) -> bool:  # noqa: ARG002 - consumer links use the tag
        """Handle the peer's outcome of a delivery; return whether that settles it."""
        return disposition.settled

    def on_release(self) -> None:
        """Forget the deliveries that the peer has not settled."""
        self.session.forget(self)
