"""Links on which the broker sends."""

from typing import TYPE_CHECKING

from local.broker.protocol.link import Link
from local.broker.protocol.performatives import Attach, Disposition, Flow

if TYPE_CHECKING:
    from local.broker.protocol.session import Session

_SERIAL = 0xFFFFFFFF
_SETTLED = 1


class OutgoingLink(Link):
    """A link on which the peer grants credit and the broker delivers."""

    def __init__(self, session: "Session", attach: Attach) -> None:
        super().__init__(session, attach)
        self._credit = 0
        self._delivery_count = 0
        self._sends_settled = attach.send_settle_mode == _SETTLED

    def can_take(self) -> bool:
        """Return whether one more message can be sent now."""
        return self._credit > 0 and self.session.can_send()

    def send(self, tag: bytes, message: bytes, *, settled: bool) -> None:
        """Send a message."""
        self._credit -= 1
        self._delivery_count = (self._delivery_count + 1) & _SERIAL
        self.session.send(self, tag, message, settled=settled)

    def on_flow(self, flow: Flow) -> None:
        """Take the credit that the peer grants; answer a drain or an echo."""
        if self.is_over or not self.is_attached:
            return
        if flow.link_credit is not None:
            # Credit counts from the peer's delivery count: what is under way has used some of it already.
            granted_from = 0 if flow.delivery_count is None else flow.delivery_count
            credit = (granted_from + flow.link_credit - self._delivery_count) & _SERIAL
            self._credit = 0 if credit & 0x8000_0000 else credit
        self.pump()
        if flow.drain:
            self._delivery_count = (self._delivery_count + self._credit) & _SERIAL
            self._credit = 0
        if flow.drain or flow.echo:
            self.session.emit_link_flow(self.handle, self._delivery_count, self._credit, drain=flow.drain)

    def settle(self, delivery_id: int, tag: bytes, disposition: Disposition) -> bool:  # noqa: ARG002 - for consumers
        """Take the peer's outcome of a delivery; return whether it is settled with that."""
        return disposition.settled

    def on_released(self) -> None:
        """Forget what the peer has not settled."""
        self.session.forget(self)
