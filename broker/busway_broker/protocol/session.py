"""The broker's end of an AMQP session: links by handle, and the deliveries that the peer has not settled."""

from collections.abc import Iterator
from typing import Any

from busway_broker import errors
from busway_broker.protocol.attaching import create_link
from busway_broker.protocol.holdings import LINK_SIZE
from busway_broker.protocol.link import Link
from busway_broker.protocol.link_session import LinkConnection, LinkSession
from shared.amqp import performatives
from shared.amqp.dispositions import (
    Disposition,
    accepted_frame,
    read_disposition,
)
from shared.amqp.errors import AmqpError, SessionViolation
from shared.amqp.fields import ACCEPTED, Field, Fields
from shared.amqp.performatives import Attach, Begin, Flow
from shared.amqp.serial import numbers_between

INCOMING_WINDOW = 5000
HANDLE_MAX = 255  # a begin of the service: vcabbage/amqp 43


class Session(LinkSession):
    """The broker's end of a session; it uses the peer's channel and handle numbers as its own."""

    def __init__(
        self, connection: LinkConnection[Any], channel: int, peer: Begin, *, incoming_window: int = INCOMING_WINDOW
    ) -> None:
        """Accept *incoming_window* transfers before the peer needs a new window."""
        super().__init__(connection, channel, peer, incoming_window=incoming_window)
        self.links: dict[int, Link] = {}
        self._sizes: dict[int, int] = {}
        self._is_over = False

    # Incoming

    def receive(self, code: int, raw: list[Field], body: bytes, position: int) -> None:
        """Handle a performative whose payload starts at *position* of *body*."""
        if self._is_over:
            return
        if code == performatives.TRANSFER:
            self.count_transfer()
            transfer = performatives.read_transfer(raw)
            self._link(transfer.handle).on_transfer(transfer, body[position:])
            self.renew_window()
        elif code == performatives.DISPOSITION:
            self._on_disposition(read_disposition(raw))
        elif code == performatives.FLOW:
            self._on_flow(performatives.read_flow(raw))
        elif code == performatives.ATTACH:
            self._on_attach(performatives.read_attach(raw), len(body))
        elif code == performatives.DETACH:
            self._on_detach(Fields("detach", raw))

    def _on_attach(self, attach: Attach, size: int) -> None:
        if attach.handle in self.links or attach.handle > HANDLE_MAX:
            raise SessionViolation(errors.HANDLE_IN_USE, f"handle {attach.handle}: in use, or above {HANDLE_MAX}")
        self._sizes[attach.handle] = LINK_SIZE + size
        self.connection.holdings.change(LINK_SIZE + size)
        if self._is_over:
            return
        try:
            link = create_link(self, attach)
        except AmqpError as refusal:
            link = Link(self, attach)
            self.links[attach.handle] = link
            link.refuse(refusal)
            return
        self.links[attach.handle] = link
        try:
            link.open()
        except AmqpError as refusal:
            link.refuse(refusal)

    def _on_detach(self, fields: Fields) -> None:
        handle, closed = fields.required_number(0), fields.flag(1)
        link = self.links.pop(handle, None)
        if link is not None:
            self.connection.holdings.change(-self._sizes.pop(handle))
            was_full = self.is_full
            link.on_detach(closed=closed)
            if was_full:
                self.pump()

    def _on_flow(self, flow: Flow) -> None:
        was_blocked = not self.can_send()
        self.count_window(flow)
        if flow.handle is not None:
            self._link(flow.handle).on_flow(flow)
        elif flow.echo:
            self.emit_flow()
        if was_blocked:
            self.pump()

    def on_acceptance(self, first: int, last: int, is_settled: bool) -> None:
        """Handle the peer's acceptance of deliveries, nearly always of one."""
        if first != last:
            self._on_disposition(Disposition(True, first, last, is_settled, ACCEPTED))
            return
        number = first
        entry = self._unsettled.pop(number, None)
        if entry is None or self._is_over:
            return
        link, tag = entry
        if link.accept(tag):
            if not is_settled:
                self.connection.emit(accepted_frame(self.channel, number, number))
            if len(self._unsettled) + 1 == self._max_unsettled:
                self.pump()
        else:
            self._unsettled[number] = entry
            self._on_disposition(Disposition(True, number, number, is_settled, ACCEPTED))

    def _on_disposition(self, found: Disposition) -> None:
        """Handle the peer's outcome of one or more deliveries."""
        if not found.role or self._is_over:
            return  # the peer acknowledges what the broker, as the receiver, has settled already
        was_full = self.is_full
        unsettled = self._unsettled
        numbers = numbers_between(found.first, found.last, unsettled)
        accepted = []
        for number in numbers:
            link, tag = unsettled[number]
            if found.state is ACCEPTED and link.accept(tag):
                accepted.append(number)
                unsettled.pop(number, None)
            elif link.settle(number, tag, found):
                unsettled.pop(number, None)
        if not found.settled:
            # One answer to a disposition of many: a client reads it in a hundredth of the time.
            for start, end in _ranges(accepted):
                self.connection.emit(accepted_frame(self.channel, start, end))
        if was_full and not self.is_full:
            self.pump()

    def _link(self, handle: int) -> Link:
        link = self.links.get(handle)
        if link is None:
            raise SessionViolation(errors.UNATTACHED_HANDLE, f"handle {handle}: no link is attached to it")
        return link

    def pump(self) -> None:
        """Let every link deliver what it can."""
        for link in list(self.links.values()):
            link.pump()

    # End

    def fail(self, violation: SessionViolation) -> None:
        """End the session because the peer violated the protocol; later frames on its channel are ignored."""
        self.emit(performatives.end(violation))
        self._release_links()

    def end(self, *, is_connected: bool = True) -> None:
        """Release the links, because the peer has ended the session or the connection is closed."""
        was_over = self._is_over
        self._release_links()
        if is_connected and not was_over:
            self.emit(performatives.end())

    def _release_links(self) -> None:
        self._is_over = True
        links, self.links = self.links, {}
        self.connection.holdings.change(-sum(self._sizes.values()))
        self._sizes.clear()
        for link in links.values():
            link.release()


def _ranges(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of each run of consecutive numbers."""
    start = 0
    for index in range(1, len(numbers) + 1):
        if index == len(numbers) or numbers[index] != numbers[index - 1] + 1:
            yield numbers[start], numbers[index - 1]
            start = index
