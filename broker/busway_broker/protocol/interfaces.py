"""What a link needs of its session, and a session of its connection, so that imports go one way."""

from collections.abc import Callable
from typing import Protocol

from busway_broker.core.namespace import Namespace
from busway_broker.core.transaction import Transactions, TransactionScope
from busway_broker.protocol.claims import Claims
from busway_broker.protocol.holdings import Holdings
from busway_broker.protocol.open_links import OpenLinks
from shared.amqp.dispositions import Disposition


class LinkConnection(Protocol):
    """A connection as its sessions and links see it."""

    namespace: Namespace
    """The namespace that the peer is connected to."""
    later: Callable[[float, Callable[[], None]], object] | None
    """What calls a function after seconds of the machine's time, None without sockets."""
    claims: Claims
    """What the peer may do."""
    holdings: Holdings
    """What the peer makes the broker hold."""
    transactions: Transactions
    """The transactions that the peer has declared."""
    is_writable: bool
    """Whether the peer reads what is sent to it."""
    response_links: list["ResponsePath"]
    """The open links that answers to requests can be sent on, oldest first."""
    open_links: OpenLinks
    """Closes a connection that nobody uses."""
    remote_max_frame_size: int
    """The largest frame that the peer accepts, in bytes."""

    def emit(self, frame: bytes, payload: bytes = b"", /) -> None:
        """Add a frame to the output."""
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


class LinkSession(Protocol):
    """A session as its links see it."""

    connection: LinkConnection
    """The connection of the session."""
    transaction_scope: TransactionScope
    """The entity that the links of the session have in common for transactions."""

    def emit(self, performative: bytes) -> None:
        """Send a performative."""
        ...

    def emit_outcome(self, delivery_id: int, state: bytes, *, role: bool, transaction_id: bytes | None = None) -> None:
        """Send the encoded outcome of a delivery, of the peer's if the role is True, maybe within a transaction."""
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

    session: LinkSession
    """The session of the link."""
    node_path: str
    """The path of the node that answers."""
    address: str | None
    """The address that a request names as its reply-to."""

    def answer(self, message: bytes) -> None:
        """Send an answer as soon as the peer accepts it."""
        ...
