"""
The client's end of a connection and its sessions, without I/O.

The client sends its open, and what `opened` begins, as soon as the peer has authenticated it, unless it is to await the
answer.

Source: OASIS AMQP 1.0, part 2, sections 2.4 to 2.6, and part 5, section 5.3.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

from shared.amqp import connection, performatives, sasl, session
from shared.amqp.connection import IN_SESSION, MAX_FRAME_SIZE, Phase
from shared.amqp.dispositions import Disposition, read_disposition
from shared.amqp.errors import (
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    UNAUTHORIZED_ACCESS,
    AmqpError,
    ConnectionClosed,
    ConnectionViolation,
    SessionViolation,
)
from shared.amqp.fields import ACCEPTED, Field, Fields, read_list
from shared.amqp.frames import AMQP_HEADER, MIN_MAX_FRAME_SIZE, SASL_HEADER, ProtocolHeader, compose
from shared.amqp.links import Link
from shared.amqp.performatives import Attach, Open

IDLE_SECONDS = 30.0
"""What the open announces, half of the time after which the connection is closed."""
# SASL outcomes: authentication failed, and a permanent error of the system.
_REFUSED_CODES = frozenset((1, 3))


class Opening(NamedTuple):
    """How a client introduces itself, and the SASL mechanism with its response, which may have a password."""

    container_id: str
    host_name: str
    mechanism: str
    response: bytes = b""
    sasl_host_name: str | None = None
    channel_max: int = 0
    awaits_answer: bool = False
    """Whether nothing begins before the peer has opened the connection too, as Microsoft's clients do."""


class Client(connection.Connection["ClientSession"]):
    """The client's end of a connection."""

    def __init__(
        self,
        opening: Opening,
        wake: Callable[[], None],
        *,
        opened: Callable[[], None],
        ended: Callable[[Exception], None],
    ) -> None:
        """Call *opened* when sessions can begin, and *ended* with the error that has ended the connection."""
        super().__init__(wake, max_frame_size=MAX_FRAME_SIZE, tick_interval=IDLE_SECONDS)
        self.failure: Exception | None = None
        self._opening = opening
        self._opened = opened
        self._ended = ended
        self._begun: dict[int, ClientSession] = {}
        """The sessions by this end's channel."""
        self._expected = SASL_HEADER

    def start(self) -> None:
        """Begin with SASL: the socket is connected."""
        self.emit(SASL_HEADER.encode())

    def receive(self, data: bytes) -> None:
        """Handle bytes that have arrived, then let the links do what they allow."""
        super().receive(data)
        if self.is_closed:
            return
        self._is_receiving = True
        try:
            for begun in [*self.sessions.values()]:
                begun.pump()
        finally:
            self._is_receiving = False

    def begin(self, *, incoming_window: int, outgoing_window: int, handle_max: int) -> "ClientSession":
        """Return a new session."""
        channel = next(number for number in itertools.count() if number not in self._begun)
        begun = ClientSession(self.emit, channel, incoming_window=incoming_window, outgoing_window=outgoing_window)
        self._begun[channel] = begun
        begun.emit_begin(None, handle_max)
        return begun

    def tick(self) -> None:
        """Send a heartbeat, or give up a silent peer; must be called every `tick_interval` seconds."""
        if self._beat() > 2 * IDLE_SECONDS:
            self.end(ConnectionClosed(f"the broker sent nothing for {2 * IDLE_SECONDS:.0f} s"))

    def close(self, failure: AmqpError | None = None) -> None:
        """Close the connection, with a reason if the peer violated the protocol."""
        self.end(failure or ConnectionClosed("the connection is closed"))

    def end(self, failure: Exception) -> None:
        """End the connection with an error, unless it has ended."""
        if self.is_closed:
            return
        if self._phase in (Phase.OPENING, Phase.OPEN):
            reason = failure if isinstance(failure, ConnectionViolation) else None
            self.emit(compose(0, performatives.close(reason)))
        self._phase, self.is_closed = Phase.CLOSED, True
        self.failure = failure
        for begun in [*self._begun.values()]:
            begun.end_links(failure)
        self._ended(failure)

    def _read_header(self) -> bool:
        try:
            return super()._read_header()
        except ConnectionViolation:
            self.end(_unexpected("another protocol"))
            return False

    def _on_header(self, header: ProtocolHeader) -> None:
        if header != self._expected:
            version = ".".join(str(number) for number in header.version)
            self.end(_unexpected(f"AMQP {version}"))
        elif header == SASL_HEADER:
            self._phase = Phase.SASL
        else:
            self._phase = Phase.OPENING
            own, idle_time_out = self._opening, int(IDLE_SECONDS * 1000)
            opening = Open(own.container_id, MAX_FRAME_SIZE, own.channel_max, idle_time_out, own.host_name)
            self.emit(compose(0, performatives.open_(opening)))
            if not own.awaits_answer:
                self._opened()

    def _on_sasl(self, kind: int, body: bytes) -> None:
        opening = self._opening
        code, fields = sasl.read(kind, body, sasl.MECHANISMS, sasl.OUTCOME)
        if code == sasl.MECHANISMS:
            offered = fields.symbols(0)
            if opening.mechanism not in offered:
                text = f"it offers {', '.join(offered)}, expected {opening.mechanism}"
                self.end(AmqpError(UNAUTHORIZED_ACCESS, text))
                return
            self.emit(sasl.init(opening.mechanism, opening.response, opening.sasl_host_name))
        elif result := fields.number(0):
            condition = UNAUTHORIZED_ACCESS if result in _REFUSED_CODES else ""
            self.end(AmqpError(condition, f"SASL {opening.mechanism}: code {result}"))
        else:
            self._phase, self._expected = Phase.HEADER, AMQP_HEADER
            self.emit(AMQP_HEADER.encode())

    def _on_performative(self, channel: int, body: bytes) -> None:
        begun = self.sessions.get(channel)
        code, raw, position = read_list(body)
        if begun is not None and code in IN_SESSION:
            try:
                begun.receive(code, raw, body, position)
            except SessionViolation as violation:
                begun.close(violation)
        elif code == performatives.OPEN:
            self._on_open(performatives.read_open(raw))
        elif code == performatives.BEGIN:
            self._on_begin(channel, performatives.read_begin(raw))
        elif code == performatives.CLOSE:
            error = performatives.read_error(Fields("close", raw).value(0))
            self.end(error or AmqpError("", "the broker closed the connection"))
        elif code == performatives.END and begun is not None:
            error = performatives.read_error(Fields("end", raw).value(0))
            del self.sessions[channel], self._begun[begun.channel]
            begun.on_end(error or AmqpError("", "the broker closed the session"))

    def _on_open(self, peer: performatives.Open) -> None:
        self._phase = Phase.OPEN
        self._reader.max_frame_size = MAX_FRAME_SIZE
        self.remote_max_frame_size = max(MIN_MAX_FRAME_SIZE, min(peer.max_frame_size, MAX_FRAME_SIZE))
        self._silence = 0.0
        self._send_heartbeats((peer.idle_time_out or 2 * IDLE_SECONDS * 1000) / 1000, IDLE_SECONDS)
        if self._opening.awaits_answer:
            self._opened()

    def _on_begin(self, channel: int, peer: performatives.Begin) -> None:
        begun = None if peer.remote_channel is None else self._begun.get(peer.remote_channel)
        if begun is None or channel in self.sessions:
            raise ConnectionViolation(NOT_ALLOWED, f"channel {channel}: a begin that answers none")
        self.sessions[channel] = begun
        begun.open_window(peer, self.remote_max_frame_size)


def _unexpected(answer: str) -> AmqpError:
    return AmqpError(NOT_IMPLEMENTED, f"it answers with {answer}, expected AMQP 1.0 with SASL at this port")


class ClientSession(session.Session):
    """The client's end of a session; `Client.begin` makes it."""

    def __init__(
        self, emit_frame: session.EmitFrame, channel: int, *, incoming_window: int, outgoing_window: int
    ) -> None:
        super().__init__(
            emit_frame,
            channel,
            incoming_window=incoming_window,
            outgoing_window=outgoing_window,
            next_outgoing_id=0,
        )
        self._links: dict[int, Link] = {}
        """The open links by the peer's handle."""
        self._attaching: dict[str, Link] = {}
        self._handles: set[int] = set()
        self._is_over = False

    def attach(self, link: Link) -> None:
        """Ask for a link of this session."""
        handle = next(number for number in itertools.count() if number not in self._handles)
        self._handles.add(handle)
        link.own = link.own._replace(handle=handle)
        self._attaching[link.name] = link
        self.emit(performatives.attach(link.own))

    def receive(self, code: int, raw: list[Field], body: bytes, position: int) -> None:
        """Handle a performative; none but its end after this end has closed the session."""
        if self._is_over:
            return
        if code == performatives.TRANSFER:
            self.count_transfer()
            transfer = performatives.read_transfer(raw)
            link = self._links.get(transfer.handle)
            if link is not None:
                link.on_transfer(transfer, body[position:])
            self.renew_window()
        elif code == performatives.DISPOSITION:
            found = read_disposition(raw)
            for link in [*self._links.values()]:
                link.on_disposition(found)
        elif code == performatives.FLOW:
            self._on_flow(performatives.read_flow(raw))
        elif code == performatives.ATTACH:
            self._on_attach(performatives.read_attach(raw))
        elif code == performatives.DETACH:
            self._on_detach(Fields("detach", raw))

    def on_acceptance(self, first: int, last: int, is_settled: bool) -> None:
        """Handle the acceptance of sent deliveries."""
        for link in [*self._links.values()]:
            if is_settled:
                link.on_acceptance(first, last)
            else:
                link.on_disposition(Disposition(True, first, last, False, ACCEPTED))

    def pump(self) -> None:
        """Let the links do what the frames allow that have arrived together."""
        for link in [*self._links.values()]:
            link.pump()

    def close(self, violation: SessionViolation | None = None) -> None:
        """End the session, with a reason if the peer violated the protocol."""
        if not self._is_over:
            self._is_over = True
            self.emit(performatives.end(violation))
            self.end_links(violation or ConnectionClosed("the session is closed"))

    def on_end(self, failure: Exception) -> None:
        """Handle the end of the session by the peer."""
        if not self._is_over:
            self._is_over = True
            self.emit(performatives.end())
        self.end_links(failure)

    def end_links(self, failure: Exception) -> None:
        """End the links with an error."""
        for link in [*self._links.values(), *self._attaching.values()]:
            link.end(failure)

    def _on_attach(self, peer: Attach) -> None:
        link = self._attaching.pop(peer.name, None)
        if link is not None:
            self._links[peer.handle] = link
            link.on_attach(peer)

    def _on_detach(self, fields: Fields) -> None:
        link = self._links.pop(fields.required_number(0), None)
        if link is not None:
            self._handles.discard(link.handle)
            link.detach()
            error = performatives.read_error(fields.value(2))
            link.end(error or AmqpError("", "the broker closed the link"))

    def _on_flow(self, flow: performatives.Flow) -> None:
        self.count_window(flow)
        link = None if flow.handle is None else self._links.get(flow.handle)
        if link is not None:
            link.on_flow(flow)
        elif flow.handle is None and flow.echo:
            self.emit_flow()
