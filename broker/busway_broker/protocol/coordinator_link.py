"""
The link to the coordinator, on which a client declares and discharges transactions.

Source: OASIS AMQP 1.0, part 4, sections 4.2 and 4.3.
"""

from busway_broker.errors import Refusal
from busway_broker.faults import Operation
from busway_broker.protocol.incoming_link import IncomingLink
from busway_broker.protocol.link_session import LinkSession
from shared.amqp import performatives
from shared.amqp.errors import DECODE_ERROR, NOT_ALLOWED, NOT_IMPLEMENTED
from shared.amqp.fields import Fields, fields_of
from shared.amqp.performatives import Attach, Transfer
from shared.amqp.requests import parts_of
from shared.amqp.values import Malformed

ADDRESS = "$coordinator"
"""The path that faults strike it at: it has no address."""
_MAX_SIZE = 1024


class CoordinatorLink(IncomingLink):
    """A control link; its transactions end with it."""

    ends_when_too_large = False
    operation = Operation.MANAGE

    def __init__(self, session: LinkSession, attach: Attach) -> None:
        super().__init__(session, attach, _MAX_SIZE)
        self.path = ADDRESS
        self._transactions = session.connection.transactions
        session.transaction_scope.add_coordinator()

    def on_release(self) -> None:
        """Roll back the open transactions."""
        super().on_release()
        self._transactions.end_all(self)

    def on_transfer(self, transfer: Transfer, payload: bytes) -> None:
        """Handle one frame of a request, which must not be settled: its answer is the outcome."""
        if transfer.settled and not self.is_over:
            self.detach(Refusal(NOT_ALLOWED, "a message on a control link is settled, expected it unsettled"))
            return
        super().on_transfer(transfer, payload)

    def accept(self, message: bytes, message_format: int) -> bytes:  # noqa: ARG002 - requests are never batched
        """Carry out a request and return its outcome."""
        return self._carry_out(*_read(message))

    def _carry_out(self, code: int, fields: Fields) -> bytes:
        if code == performatives.DECLARE:
            if fields.value(0) is not None:
                raise Refusal(NOT_IMPLEMENTED, "declare: distributed transactions are not supported")
            return performatives.declared(self._transactions.declare(self).transaction_id)
        if code == performatives.DISCHARGE:
            self._transactions.discharge(fields.binary(0) or b"", fail=fields.flag(1))
            return performatives.ACCEPTED_STATE
        raise Refusal(NOT_IMPLEMENTED, f"0x{code:02x}: unknown request, expected declare or discharge")


def _read(message: bytes) -> tuple[int, Fields]:
    """Return the descriptor and the fields of a request; a Refusal if it is no request."""
    try:
        _, _, content = parts_of(message)
    except Malformed as malformed:
        raise Refusal(DECODE_ERROR, malformed.description) from malformed
    return fields_of(content, "request to the coordinator")
