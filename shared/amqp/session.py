"""
One AMQP session at either end: the windows in both directions, and deliveries by number.

Source: OASIS AMQP 1.0, part 2, sections 2.5 and 2.6.
"""

from abc import ABC, abstractmethod
from collections import deque
from typing import NamedTuple, Protocol

from shared.amqp import performatives
from shared.amqp.errors import WINDOW_VIOLATION, SessionViolation
from shared.amqp.fields import Field
from shared.amqp.frames import compose
from shared.amqp.performatives import Begin, Flow
from shared.amqp.serial import SERIAL, difference


class EmitFrame(Protocol):
    """Adds a frame to the output of a connection; what follows its performative may come apart."""

    def __call__(self, frame: bytes, payload: bytes = b"", /) -> None:
        """Add a frame."""
        ...


class _Frame(NamedTuple):
    """A frame of a delivery that waits for the peer's window."""

    handle: int
    head: bytes
    payload: bytes


class _Answer(NamedTuple):
    """The answer to a flow, which waits for the frames before it."""

    handle: int
    delivery_count: int
    link_credit: int
    drain: bool


class Session(ABC):
    """One end of a session."""

    def __init__(
        self,
        emit_frame: EmitFrame,
        channel: int,
        *,
        incoming_window: int,
        outgoing_window: int,
        next_outgoing_id: int,
    ) -> None:
        """Accept *incoming_window* transfers before the peer needs a new window; `open_window` follows its begin."""
        self.channel = channel
        self._emit_frame = emit_frame
        self._next_incoming_id = 0
        self._incoming_window = self._max_incoming_window = incoming_window
        self._first_outgoing_id = self._next_outgoing_id = next_outgoing_id
        self._outgoing_window = outgoing_window
        self._remote_incoming_window = 0
        self.next_delivery_id = 0
        """The number of the next delivery."""
        self._room = 0
        self._waiting: deque[_Frame | _Answer] = deque()

    def open_window(self, peer: Begin, max_frame_size: int) -> None:
        """Start to send, in frames of up to *max_frame_size* bytes, what the begin of the peer has room for."""
        self._next_incoming_id = peer.next_outgoing_id
        self._remote_incoming_window = peer.incoming_window
        self._room = max_frame_size - performatives.TRANSFER_SIZE

    def emit_begin(self, remote_channel: int | None, handle_max: int) -> None:
        """Send the begin, which answers that of the peer if it names its channel."""
        self.emit(
            performatives.begin(
                Begin(remote_channel, self._next_outgoing_id, self._incoming_window, self._outgoing_window, handle_max)
            )
        )

    def emit(self, performative: bytes) -> None:
        """Send a performative."""
        self._emit_frame(compose(self.channel, performative))

    # Incoming

    @abstractmethod
    def receive(self, code: int, raw: list[Field], body: bytes, position: int) -> None:
        """Handle a performative whose payload starts at *position* of *body*."""

    @abstractmethod
    def on_acceptance(self, first: int, last: int, is_settled: bool) -> None:
        """Handle the peer's acceptance of deliveries: nearly all dispositions."""

    def count_transfer(self) -> None:
        """Count a transfer of the peer; raises SessionViolation if it has no window for it."""
        if self._incoming_window == 0:
            raise SessionViolation(WINDOW_VIOLATION, "more transfers than the session's window allows")
        self._next_incoming_id = (self._next_incoming_id + 1) & SERIAL
        self._incoming_window -= 1

    def renew_window(self) -> None:
        """Give the peer a new window if it has used half of it."""
        if self._incoming_window < self._max_incoming_window // 2:
            self._incoming_window = self._max_incoming_window
            self.emit_flow()

    def count_window(self, flow: Flow) -> None:
        """Take the window that the peer grants, and send what has waited for it."""
        acknowledged = self._first_outgoing_id if flow.next_incoming_id is None else flow.next_incoming_id
        self._remote_incoming_window = flow.incoming_window - difference(self._next_outgoing_id, acknowledged)
        self._send_waiting()

    # Outgoing

    @property
    def has_window(self) -> bool:
        """Return whether the peer accepts one more transfer now."""
        return self._remote_incoming_window > 0 and not self._waiting

    def transfer(self, handle: int, tag: bytes, message: bytes, *, settled: bool) -> int:
        """
        Send a message in frames of the peer's maximum size and return the number of its delivery.

        Frames beyond its window wait.
        """
        delivery_id = self.next_delivery_id
        self.next_delivery_id = (delivery_id + 1) & SERIAL
        size = len(message)
        if size <= self._room and self._remote_incoming_window > 0 and not self._waiting:
            # Nearly all, without the calls for parts and a closed window. The message is not copied.
            head = performatives.transfer(self.channel, handle, delivery_id, tag, size, settled=settled, more=False)
            self._next_outgoing_id = (self._next_outgoing_id + 1) & SERIAL
            self._remote_incoming_window -= 1
            self._emit_frame(head, message)
            return delivery_id
        for position in range(0, size or 1, self._room):
            part = message[position : position + self._room]
            more = size - position > self._room
            head = performatives.transfer(self.channel, handle, delivery_id, tag, len(part), settled=settled, more=more)
            self._waiting.append(_Frame(handle, head, part))
        self._send_waiting()
        return delivery_id

    def _send_waiting(self) -> None:
        waiting = self._waiting
        while waiting:
            first = waiting[0]
            if isinstance(first, _Answer):
                self.emit_link_flow(first.handle, first.delivery_count, first.link_credit, drain=first.drain)
            elif self._remote_incoming_window > 0:
                self._next_outgoing_id = (self._next_outgoing_id + 1) & SERIAL
                self._remote_incoming_window -= 1
                self._emit_frame(first.head, first.payload)
            else:
                break
            waiting.popleft()

    def drop_waiting(self, handle: int) -> None:
        """Drop the frames of a link that ends: the peer would take them for those of a link that it does not know."""
        if self._waiting:
            self._waiting = deque(each for each in self._waiting if each.handle != handle)
            self._send_waiting()

    def emit_flow(self) -> None:
        """Send the state of the windows."""
        self.emit(performatives.flow(self._flow()))

    def emit_link_flow(self, handle: int, delivery_count: int, link_credit: int, *, drain: bool = False) -> None:
        """Send the state of a link's credit."""
        state = self._flow()._replace(
            handle=handle, delivery_count=delivery_count, link_credit=link_credit, drain=drain
        )
        self.emit(performatives.flow(state))

    def answer_link_flow(self, handle: int, delivery_count: int, link_credit: int, *, drain: bool) -> None:
        """Send what a link that sends has left of its credit, behind its deliveries that wait for the peer's window."""
        self._waiting.append(_Answer(handle, delivery_count, link_credit, drain))
        self._send_waiting()

    def _flow(self) -> Flow:
        return Flow(
            self._next_incoming_id,
            self._incoming_window,
            self._next_outgoing_id,
            self._outgoing_window,
            None,
            None,
            None,
            drain=False,
            echo=False,
        )
