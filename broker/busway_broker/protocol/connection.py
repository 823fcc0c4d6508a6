"""
The broker's end of a connection: SASL, open and close, and the frames for its sessions.

Frames for a session that has ended are ignored: the SDKs answer detaches on channels that they have ended.

Source: OASIS AMQP 1.0, part 2, section 2.4.
"""

import uuid
from collections.abc import Callable, Iterator

from busway_broker import errors
from busway_broker.core.namespace import Namespace
from busway_broker.errors import Refusal
from busway_broker.protocol import claims
from busway_broker.protocol.claims import MECHANISMS
from busway_broker.protocol.holdings import SESSION_SIZE, TotalHoldings
from busway_broker.protocol.link import Link
from busway_broker.protocol.link_session import HEARTBEAT_INTERVAL, MAX_FIRST_FRAME_SIZE, LinkConnection
from busway_broker.protocol.session import HANDLE_MAX, INCOMING_WINDOW, Session
from shared.amqp import performatives, sasl
from shared.amqp.connection import IN_SESSION, MAX_FRAME_SIZE, Phase
from shared.amqp.errors import (
    INVALID_FIELD,
    NOT_ALLOWED,
    UNAUTHORIZED_ACCESS,
    AmqpError,
    ConnectionViolation,
    SessionViolation,
)
from shared.amqp.fields import read_list
from shared.amqp.frames import AMQP_HEADER, MIN_MAX_FRAME_SIZE, SASL_HEADER, ProtocolHeader, compose
from shared.amqp.performatives import Open

CHANNEL_MAX = 4999
MAX_SHOWN = 100  # characters of a client's name that are kept
IDLE_TIME_OUT = 120.0  # seconds that the open announces; the connection is closed after twice as long
MIN_REMOTE_IDLE_TIME_OUT = 0.5
HANDSHAKE_SECONDS = 60.0  # within which a peer has to open the connection, whatever it sends
TOKEN_SECONDS = 60.0  # within which it then has to show a valid token or key, if the namespace has keys
_TRANSFER = bytes((0, 0x53, performatives.TRANSFER))


class Connection(LinkConnection[Session]):
    """The broker's end of a connection."""

    def __init__(
        self,
        namespace: Namespace,
        wake: Callable[[], None],
        total: TotalHoldings | None = None,
        *,
        incoming_window: int = INCOMING_WINDOW,
        later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        """Accept *incoming_window* transfers in each session before the peer needs a new window."""
        super().__init__(namespace, wake, total, later=later)
        self.container_id = ""
        self._incoming_window = incoming_window
        self._is_counted = False
        self._untrusted_seconds = 0.0

    def _links(self) -> Iterator[Link]:
        return (link for session in [*self.sessions.values()] for link in [*session.links.values()])

    def _is_used(self) -> bool:
        return any(link.keeps_connection and not link.is_over for link in self._links())

    def use_link(self, name: str) -> None:
        """Count a request about a link as a use of it."""
        for link in self._links():
            if link.peer.name == name:
                link.use()

    # Incoming

    def receive(self, data: bytes) -> None:
        """Handle bytes that have arrived."""
        super().receive(data)
        if self._reader.unread or self.holdings.unread:
            self.holdings.set_unread(len(self._reader.unread))

    def _check_size(self, body: bytes) -> None:
        """Raise ConnectionViolation for a large frame of a peer without a token, except for one that has a token."""
        # Before it is decoded: that takes long, and what it becomes is many times as large.
        if not body.startswith(_TRANSFER) and not self.holdings.is_trusted:
            raise ConnectionViolation(
                errors.RESOURCE_LIMIT_EXCEEDED,
                f"frame of {len(body)} bytes before a valid token or key, expected at most {MAX_FIRST_FRAME_SIZE}",
            )

    def _on_header(self, header: ProtocolHeader) -> None:
        supported = SASL_HEADER if header.protocol_id == SASL_HEADER.protocol_id else AMQP_HEADER
        self.emit(supported.encode())
        if header != supported:
            # The specification's answer to an unsupported protocol: send the supported header and close.
            self.release()
        elif supported is SASL_HEADER:
            self.emit(sasl.mechanisms(MECHANISMS))
            self._phase = Phase.SASL
        else:
            self._phase = Phase.OPENING

    def _on_sasl(self, kind: int, body: bytes) -> None:
        is_authenticated = self.claims.authenticate(kind, body)
        self.emit(sasl.outcome(0 if is_authenticated else 1))
        if is_authenticated:
            self._phase = Phase.HEADER
        else:
            self.release()

    def _on_performative(self, channel: int, body: bytes) -> None:
        if len(body) > MAX_FIRST_FRAME_SIZE:
            self._check_size(body)
        session = self.sessions.get(channel)
        code, raw, position = read_list(body)
        if session is not None and code in IN_SESSION:
            # Nearly all frames: there are sessions only on an open connection.
            try:
                session.receive(code, raw, body, position)
            except SessionViolation as violation:
                session.fail(violation)
        elif self._phase is Phase.OPENING:
            if code != performatives.OPEN:
                raise ConnectionViolation(NOT_ALLOWED, f"performative 0x{code:02x}, expected an open first")
            self._on_open(performatives.read_open(raw))
        elif code == performatives.BEGIN:
            self._on_begin(channel, performatives.read_begin(raw))
        elif code == performatives.CLOSE:
            self.close()
        elif code not in range(performatives.ATTACH, performatives.END + 1):
            raise ConnectionViolation(NOT_ALLOWED, f"unexpected performative 0x{code:02x}")
        elif session is not None:
            del self.sessions[channel]
            self.holdings.change(-SESSION_SIZE)
            session.end()
        elif code in (performatives.ATTACH, performatives.TRANSFER):
            raise ConnectionViolation(NOT_ALLOWED, f"channel {channel}: no session has begun on it")

    def _on_open(self, peer: performatives.Open) -> None:
        self._phase = Phase.OPEN
        self.container_id = peer.container_id[:MAX_SHOWN]
        self._reader.max_frame_size = MAX_FRAME_SIZE
        self.emit(self._open())
        if peer.max_frame_size < MIN_MAX_FRAME_SIZE:
            raise ConnectionViolation(
                INVALID_FIELD, f"max-frame-size {peer.max_frame_size}, expected at least {MIN_MAX_FRAME_SIZE}"
            )
        self.remote_max_frame_size = peer.max_frame_size
        self._count_connection()
        if peer.idle_time_out:
            idle_time_out = peer.idle_time_out / 1000
            if idle_time_out < MIN_REMOTE_IDLE_TIME_OUT:
                raise ConnectionViolation(
                    NOT_ALLOWED, f"idle-time-out {idle_time_out} s, expected at least {MIN_REMOTE_IDLE_TIME_OUT}"
                )
            self._send_heartbeats(idle_time_out, HEARTBEAT_INTERVAL)
        self._silence = 0.0
        self.open_links.start()

    def _count_connection(self) -> None:
        limit = self.namespace.config.max_connections
        if limit is not None and self.namespace.open_connections >= limit:
            raise ConnectionViolation(
                errors.RESOURCE_LIMIT_EXCEEDED, f"the namespace has {limit} connections already, which is its limit"
            )
        self.namespace.open_connections += 1
        self._is_counted = True

    def _open(self) -> bytes:
        identity, idle_time_out = f"busway-{uuid.uuid4().hex}", int(IDLE_TIME_OUT * 1000)
        return compose(0, performatives.open_(Open(identity, MAX_FRAME_SIZE, CHANNEL_MAX, idle_time_out)))

    def _on_begin(self, channel: int, peer: performatives.Begin) -> None:
        if channel in self.sessions or channel > CHANNEL_MAX:
            raise ConnectionViolation(NOT_ALLOWED, f"channel {channel}: in use, or above {CHANNEL_MAX}")
        self.holdings.change(SESSION_SIZE)
        if self.is_closed:
            return
        session = Session(self, channel, peer, incoming_window=self._incoming_window)
        self.sessions[channel] = session
        session.emit_begin(channel, HANDLE_MAX)

    # End

    def close(self, failure: AmqpError | None = None) -> None:
        """Close the connection, with a reason unless the peer has closed it."""
        if self._phase is Phase.OPENING:
            self.emit(self._open())
            self._phase = Phase.OPEN
        if self._phase is Phase.OPEN:
            self.emit(compose(0, performatives.close(failure)))
        elif self._phase is Phase.HEADER and failure is not None:
            self.emit(AMQP_HEADER.encode())
        self.release()

    def release(self) -> None:
        """Release everything: the socket is closed."""
        self._phase, self.is_closed = Phase.CLOSED, True
        self._delayed_until = None
        self.open_links.end()
        self.namespace.timers.forget(self)
        self.namespace.open_connections -= self._is_counted
        self._is_counted = False
        for session in list(self.sessions.values()):
            session.end(is_connected=False)
        self.sessions.clear()
        self.holdings.release()

    def resume(self) -> None:
        """Deliver what has waited because the peer did not read."""
        if self._delayed_until is not None or self.is_closed:
            return
        self.is_writable = True
        for session in list(self.sessions.values()):
            session.pump()

    # Time

    def tick(self) -> None:
        """Send a heartbeat, or close an idle connection; must be called every `tick_interval` seconds."""
        silence = self._beat()
        is_open = self._phase is Phase.OPEN
        for link in self._links():
            if link.rights and not link.is_over and not self.claims.cover(link.path, link.rights):
                # Its token has expired and was not renewed.
                link.end_forced(claims.refusal(link.path, link.rights).description, code="RenewToken")
        if silence > (2 * IDLE_TIME_OUT if is_open else HANDSHAKE_SECONDS):
            self.close(Refusal(errors.CONNECTION_FORCED, "the connection was idle for too long"))
        elif is_open and not self.claims.were_granted:
            self._untrusted_seconds += self.tick_interval
            if self._untrusted_seconds >= TOKEN_SECONDS:
                reason = f"no valid token or key within {TOKEN_SECONDS:g} s"
                self.close(Refusal(UNAUTHORIZED_ACCESS, reason))

    def describe_links(self) -> list[dict[str, object]]:
        """Return the open links as plain data, those to `$cbs` without a path."""
        links = [link for link in self._links() if not link.is_over]
        return [{"path": link.path, "role": "receiver" if link.peer.role else "sender"} for link in links]
