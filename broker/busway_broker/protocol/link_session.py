"""What links share with their session and its connection, and how they send over them."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from busway_broker import errors
from busway_broker.core.namespace import Namespace
from busway_broker.core.times import milliseconds
from busway_broker.core.transaction import Transactions, TransactionScope
from busway_broker.errors import Refusal
from busway_broker.protocol.claims import Claims
from busway_broker.protocol.holdings import Holdings, TotalHoldings
from busway_broker.protocol.open_links import OpenLinks
from shared.amqp import connection, performatives, session
from shared.amqp.connection import Phase
from shared.amqp.dispositions import Disposition, accepted_frame, disposition, transactional_disposition
from shared.amqp.performatives import Begin

MAX_FIRST_FRAME_SIZE = 8192  # until the open, where the specification requires 512, and without transfers until a token
HEARTBEAT_INTERVAL = 25.0
OUTPUT_LIMIT = 1024 * 1024  # bytes of pending output at which nothing more is delivered to the peer


class DeliveringLink(Protocol):
    """A link that the broker delivers on, as its session sees it."""

    handle: int
    """The link's handle."""

    def accept(self, tag: bytes) -> bool:
        """Complete a delivery; return False, and do nothing, if `settle` has to find out what happens."""
        ...

    def settle(self, delivery_id: int, tag: bytes, disposition: Disposition) -> bool:
        """Handle the peer's outcome of a delivery; return whether that settles it."""
        ...


class ResponsePath(Protocol):
    """A link that answers to requests can be sent on."""

    session: "LinkSession"
    """The session of the link."""
    node_path: str
    """The path of the node that answers."""
    address: str | None
    """The address that a request names as its reply-to."""

    def answer(self, message: bytes) -> None:
        """Send an answer as soon as the peer accepts it."""
        ...


class LinkConnection[S: session.Session](connection.Connection[S]):
    """The broker's end of a connection as sessions and links see it: what the peer may do, and the output."""

    def __init__(
        self,
        namespace: Namespace,
        wake: Callable[[], None],
        total: TotalHoldings | None = None,
        *,
        later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        """
        Serve *namespace*; call *wake* when output appears outside `receive`; *total* has all its connections.

        *later* calls a function after seconds of the machine's time, None without sockets.
        """
        super().__init__(wake, max_frame_size=MAX_FIRST_FRAME_SIZE, tick_interval=HEARTBEAT_INTERVAL)
        self.later = later
        self.namespace = namespace
        self.is_writable = True
        """Whether the peer reads what is sent to it."""
        self.is_dropped = False
        self.claims = Claims(namespace)
        self.response_links: list[ResponsePath] = []
        """Those that are open, oldest first."""
        self.open_links = OpenLinks(namespace, self._is_used, self.close)
        self.transactions = Transactions(namespace)
        self.holdings = Holdings(
            TotalHoldings() if total is None else total,
            lambda: self._phase is Phase.OPEN and self.claims.were_granted,
            lambda reason: self.close(Refusal(errors.RESOURCE_LIMIT_EXCEEDED, reason)),
        )
        self._output_size = 0
        self._delayed_until: int | None = None

    @abstractmethod
    def _is_used(self) -> bool:
        """Return whether a link is open that keeps the connection in use."""

    @abstractmethod
    def use_link(self, name: str) -> None:
        """Count a request about a link as a use of it."""

    def emit(self, frame: bytes, payload: bytes = b"") -> None:
        """Add a frame to the output; beyond the limit the connection is not writable until it is resumed."""
        self._output.append(frame)
        self._output_size += len(frame)
        if payload:
            self._output.append(payload)
            self._output_size += len(payload)
        if self._output_size > OUTPUT_LIMIT:
            self.is_writable = False
        if not self._is_receiving:
            self._wake()

    def take_output(self) -> bytes:
        """Return and clear the output; nothing while it is delayed."""
        if self._delayed_until is not None:
            return b""
        data = b"" if self.is_dropped else b"".join(self._output)
        self._output.clear()
        self._output_size = 0
        return data

    def drop(self) -> None:
        """Break the connection without closing it, as a fault asks for; `release` follows when the socket is closed."""
        self._phase, self.is_closed = Phase.CLOSED, True
        self.is_writable = False
        self.is_dropped = True
        self._wake()

    def delay_output(self, seconds: float) -> None:
        """Send nothing for a while, as a fault asks for."""
        namespace = self.namespace
        until = milliseconds(namespace.clock) + round(seconds * 1000)
        self._delayed_until = max(until, self._delayed_until or 0)
        namespace.timers.set(self, self._delayed_until)

    def advance(self, now: int) -> int | None:
        """Send the delayed output if it is due; see `Timed`."""
        if self._delayed_until is not None and self._delayed_until <= now:
            self._delayed_until = None
            self._wake()
        return self._delayed_until


class LinkSession(session.Session):
    """The broker's end of a session as its links see it: what they send, and what the peer has not settled."""

    def __init__(self, connection: LinkConnection[Any], channel: int, peer: Begin, *, incoming_window: int) -> None:
        """Accept *incoming_window* transfers before the peer needs a new window."""
        super().__init__(
            connection.emit,
            channel,
            incoming_window=incoming_window,
            outgoing_window=incoming_window,
            next_outgoing_id=1,
        )
        self.open_window(peer, connection.remote_max_frame_size)
        self.connection = connection
        self.transaction_scope = TransactionScope()
        self._unsettled: dict[int, tuple[DeliveringLink, bytes]] = {}
        self._max_unsettled = connection.namespace.config.links.max_unsettled

    @abstractmethod
    def pump(self) -> None:
        """Let every link deliver what it can."""

    def emit_outcome(self, delivery_id: int, state: bytes, *, role: bool, transaction_id: bytes | None = None) -> None:
        """Send the encoded outcome of a delivery, of the peer's if the role is True, maybe within a transaction."""
        if transaction_id is not None:
            self.emit(
                transactional_disposition(
                    role=role, delivery_id=delivery_id, transaction_id=transaction_id, outcome=state
                )
            )
        elif state == performatives.ACCEPTED_STATE:
            self.connection.emit(accepted_frame(self.channel, delivery_id, delivery_id, role=role))
        else:
            self.emit(disposition(role=role, delivery_id=delivery_id, state=state))

    def can_send(self) -> bool:
        """Return whether the peer accepts one more transfer now."""
        return self._remote_incoming_window > 0 and self.connection.is_writable and not self._waiting

    @property
    def is_full(self) -> bool:
        """Return whether the peer has as many unsettled deliveries as it may have."""
        return self._max_unsettled is not None and len(self._unsettled) >= self._max_unsettled

    def send(self, link: DeliveringLink, tag: bytes, message: bytes, *, settled: bool) -> None:
        """Send a message in frames of the peer's maximum size; frames beyond its window wait."""
        delivery_id = self.transfer(link.handle, tag, message, settled=settled)
        if not settled:
            self._unsettled[delivery_id] = link, tag

    def settled(self, delivery_id: int) -> None:
        """Forget a delivery that was settled by the commit of its transaction."""
        was_full = self.is_full
        self._unsettled.pop(delivery_id, None)
        if was_full:
            self.pump()

    def forget(self, link: DeliveringLink) -> None:
        """Forget the deliveries of a link that has ended: those that are unsettled, and those that wait."""
        self.drop_waiting(link.handle)
        self._unsettled = {number: entry for number, entry in self._unsettled.items() if entry[0] is not link}
