"""What a link needs of its session, and a session of its connection, so that imports go one way."""

from collections.abc import Callable, MutableSequence
from typing import Protocol

from busway_broker.core.namespace import Namespace
from busway_broker.core.transaction import Transactions, TransactionScope
from busway_broker.protocol.claims import Claims
from busway_broker.protocol.holdings import Holdings
from busway_broker.protocol.open_links import OpenLinks
from shared.amqp.dispositions import Disposition


class LinkConnection(Protocol):
    """A connection as its links see it."""

    @property
    def namespace(self) -> Namespace:
        """Return the namespace that the peer is connected to."""
        ...

    @property
    def later(self) -> Callable[[float, Callable[[], None]], object] | None:
        """Return what calls a function after seconds of the machine's time, None without sockets."""
        ...

    @property
    def claims(self) -> Claims:
        """Return what the peer may do."""
        ...

    @property
    def holdings(self) -> Holdings:
        """Return what the peer makes the broker hold."""
        ...

    @property
    def transactions(self) -> Transactions:
        """Return the transactions that the peer has declared."""
        ...

    @property
    def is_writable(self) -> bool:
        """Return whether the peer reads what is sent to it."""
        ...

    @property
    def response_links(self) -> MutableSequence["ResponsePath"]:
        """Return the open links that answers to requests can be sent on, oldest first."""
        ...

    @property
    def open_links(self) -> OpenLinks:
        """Return the count of the links that keep the connection in use."""
        ...

    def use_link(self, name: str) -> None:
        """Count a request about a link as a use of it."""
        ...

    def drop(self) -> None:
        """Break the connection without closing it, as a fault asks for."""
        ...

    def delay_output(self, seconds: float) -> None:
        """Send nothing for a while, as a fault asks for."""
        ...


class SessionConnection(LinkConnection, Protocol):
    """A connection as its sessions see it."""

    @property
    def remote_max_frame_size(self) -> int:
        """Return the largest frame that the peer accepts, in bytes."""
        ...

    def emit(self, frame: bytes, payload: bytes = b"", /) -> None:
        """Add a frame to the output."""
        ...


class DeliveringLink(Protocol):
    """A link that the broker delivers on, as its session sees it."""

    @property
    def handle(self) -> int:
        """Return the link's handle."""
        ...

    def accept(self, tag: bytes) -> bool:
        """Complete a delivery; return False, and do nothing, if `settle` has to find out what happens."""
        ...

    def settle(self, delivery_id: int, tag: bytes, disposition: Disposition) -> bool:
        """Handle the peer's outcome of a delivery; return whether that settles it."""
        ...


class LinkSession(Protocol):
    """A session as its links see it."""

    @property
    def connection(self) -> LinkConnection:
        """Return the connection of the session."""
        ...

    @property
    def transaction_scope(self) -> TransactionScope:
        """Return the entity that the links of the session have in common for transactions."""
        ...

    def emit(self, performative: bytes) -> None:
        """Send a performative."""
        ...

    def emit_outcome(self, delivery_id: int, state: bytes, *, role: bool) -> None:
        """Send the encoded outcome of a delivery, of the peer's if the role is True, and settle it."""
        ...

    def emit_link_flow(self, handle: int, delivery_count: int, link_credit: int, *, drain: bool = False) -> None:
        """Send the state of a link's credit."""
        ...

    def answer_link_flow(self, handle: int, delivery_count: int, link_credit: int, *, drain: bool) -> None:
        """Send the same of a link that sends, behind its deliveries that wait for the peer's window."""
        ...

    def can_send(self) -> bool:
        """Return whether the peer accepts one more transfer now."""
        ...

    @property
    def is_full(self) -> bool:
        """Return whether the peer has as many unsettled deliveries as it may have."""
        ...

    def send(self, link: DeliveringLink, tag: bytes, message: bytes, *, settled: bool) -> None:
        """Send a message on a link."""
        ...

    def settled(self, delivery_id: int) -> None:
        """Forget a delivery that was settled by the commit of its transaction."""
        ...

    def forget(self, link: DeliveringLink) -> None:
        """Forget the unsettled deliveries of a link that has ended."""
        ...


class ResponsePath(Protocol):
    """A link that answers to requests can be sent on."""

    @property
    def session(self) -> LinkSession:
        """Return the session of the link."""
        ...

    @property
    def node_path(self) -> str:
        """Return the path of the node that answers."""
        ...

    @property
    def address(self) -> str | None:
        """Return the address that a request names as its reply-to."""
        ...

    def answer(self, message: bytes) -> None:
        """Send an answer as soon as the peer accepts it."""
        ...
