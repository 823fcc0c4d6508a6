"""What all links have in common: how they open, are refused and end."""

from typing import TYPE_CHECKING

from local.broker import errors
from local.broker.config import Right
from local.broker.errors import Refusal, SessionViolation
from local.broker.protocol import performatives
from local.broker.protocol.performatives import Attach, Flow, Transfer
from shared.amqp.values import Value

if TYPE_CHECKING:
    from local.broker.protocol.session import Session


class Link:
    """
    The broker's end of a link.

    On its own it is a link that was refused: the peer is told why and what it sends is ignored until it detaches.
    The path, as `path_of` returns it, is that of the entity it leads to.
    """

    def __init__(self, session: "Session", attach: Attach) -> None:
        self.session = session
        self.handle = attach.handle
        self.path = ""
        self.rights: frozenset[Right] = frozenset()
        self.faults = session.connection.namespace.faults
        self.peer = attach
        self.is_attached = False
        self.is_over = False

    def open(self) -> None:
        """Answer the peer's attach, at once or when what it asks for is there; a Refusal refuses the link."""
        raise NotImplementedError

    def attached(self, *, max_message_size: int | None = None, properties: Value | None = None) -> None:
        """Send the attach that says the link is open."""
        self.is_attached = True
        peer = self.peer
        self.session.emit(
            performatives.attach(
                peer._replace(
                    role=not peer.role,
                    source=self.source(),
                    target=self.target(),
                    initial_delivery_count=0 if peer.role else None,
                    max_message_size=max_message_size,
                    properties=properties,
                )
            )
        )

    def source(self) -> Value | None:
        """Return the source as the broker sees it: the peer's, as the SDKs compare it with theirs."""
        return self.peer.source

    def target(self) -> Value | None:
        """Return the target as the broker sees it."""
        return self.peer.target

    def refuse(self, refusal: Refusal) -> None:
        """Tell the peer that the link does not open: an attach without what it asked for, a detach that says why."""
        peer = self.peer
        # A link whose terminus is echoed counts as open for the SDKs, whatever follows.
        self.session.emit(
            performatives.attach(
                peer._replace(
                    role=not peer.role,
                    source=None if peer.role else peer.source,
                    target=peer.target if peer.role else None,
                    initial_delivery_count=0 if peer.role else None,
                    max_message_size=None,
                    properties=None,
                )
            )
        )
        self.is_attached = True
        self.detach(refusal)

    def detach(self, refusal: Refusal) -> None:
        """End the link from this side, with the reason."""
        self.released()
        self.session.emit(performatives.detach(self.handle, closed=True, refusal=refusal))

    def expel(self, refusal: Refusal) -> None:
        """End the link, or refuse it if it does not yet stand, as its entity or the right to use it is gone."""
        if self.is_over:
            return
        if self.is_attached:
            self.detach(refusal)
        else:
            self.refuse(refusal)

    def detached(self, *, closed: bool) -> None:
        """Answer the peer's detach, unless it is the answer to ours."""
        if not self.is_over:
            self.released()
            self.session.emit(performatives.detach(self.handle, closed=closed))

    def released(self) -> None:
        """Let go of everything the link holds; nothing is sent."""
        if not self.is_over:
            self.is_over = True
            self.session.connection.namespace.links.leave(self)
            self.on_released()

    def on_released(self) -> None:
        """Let go of what a kind of link holds."""

    def on_flow(self, flow: Flow) -> None:
        """Take the peer's view of the link's credit."""

    def on_transfer(self, transfer: Transfer, payload: bytes) -> None:  # noqa: ARG002 - the links that receive use it
        """Take one frame of a delivery."""
        if not self.is_over:
            raise SessionViolation(errors.NOT_ALLOWED, f"handle {transfer.handle}: the link is not one to send on")

    def pump(self) -> None:
        """Deliver what can be delivered."""


class UnansweredLink(Link):
    """A link whose attach a fault has struck: nothing comes of it."""

    def open(self) -> None:
        """Say nothing, and ignore what comes."""
        self.is_over = True
