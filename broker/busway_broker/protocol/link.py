"""Links of every kind: how they open, are refused and end."""

from datetime import timedelta

from busway_broker import errors
from busway_broker.config import Right
from busway_broker.core.times import milliseconds
from busway_broker.core.usage import Times
from busway_broker.errors import Refusal
from busway_broker.protocol.link_session import LinkSession
from shared.amqp import performatives
from shared.amqp.errors import NOT_ALLOWED, AmqpError, SessionViolation
from shared.amqp.performatives import Attach, Flow, Transfer
from shared.amqp.values import Value
from shared.durations import format_timespan


class Link:
    """
    The broker's end of a link.

    An instance of this class itself is a refused link: the peer gets the reason, and what it sends is ignored until it
    detaches. The path is that of the link's entity, as `path_of` returns it; the top level is that
    of the entity that its transactions are on.
    """

    def __init__(self, session: LinkSession, attach: Attach) -> None:
        self.session = session
        self.handle = attach.handle
        self.path = ""
        self.top_level = ""
        self.rights: frozenset[Right] = frozenset()
        self.faults = session.connection.namespace.faults
        self.peer = attach
        self.times: Times | None = None
        self.capabilities: tuple[str, ...] = ()
        self.is_attached = False
        self.is_over = False
        self.idle_limit: int | None = None
        self.used_at = 0

    publisher_kind = "AmqpMessagePublisher"
    """What the service calls a link of this kind when it ends one that is idle."""
    keeps_connection = False
    """Whether the connection is in use while this link is open; not by a refused one."""

    def open(self) -> None:
        """Answer the peer's attach, now or when what it waits for is available; a Refusal refuses the link."""
        raise NotImplementedError

    def send_attach(self, *, max_message_size: int | None = None, properties: Value | None = None) -> None:
        """Send the attach that opens the link."""
        self.is_attached = True
        self.use()
        self._note_access()
        if self.idle_limit is not None:
            self.session.connection.namespace.timers.set(self, self.used_at + self.idle_limit)
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
                    offered_capabilities=self.capabilities,
                )
            )
        )
        self._forget_attach()

    def _forget_attach(self) -> None:
        # It may be large, and everything that follows has been read from it.
        self.peer = self.peer._replace(source=None, target=None, properties=None)

    def source(self) -> Value | None:
        """Return the broker's source: the peer's own, because the SDKs compare them."""
        return self.peer.source

    def target(self) -> Value | None:
        """Return the broker's target."""
        return self.peer.target

    def refuse(self, failure: AmqpError) -> None:
        """Refuse the link: send an attach without the requested terminus, then a detach with the reason."""
        peer = self.peer
        # The SDKs regard a link whose terminus is echoed as open, whatever follows.
        self.session.emit(
            performatives.attach(
                peer._replace(
                    role=not peer.role,
                    source=None if peer.role else peer.source,
                    target=peer.target if peer.role else None,
                    initial_delivery_count=None,  # as seen in Azure/iothub-explorer 57
                    max_message_size=None,
                    properties=None,
                )
            )
        )
        self._forget_attach()
        self.detach(failure)

    def use(self) -> None:
        """Start the time again after which the link ends."""
        if self.idle_limit is not None:
            self.used_at = milliseconds(self.session.connection.namespace.clock)

    def advance(self, now: int) -> int | None:
        """End the link if it was not used for too long; see `Timed`."""
        if self.idle_limit is not None and self.used_at + self.idle_limit <= now:
            kind = "AmqpMessageConsumer" if self.peer.role else self.publisher_kind
            limit = format_timespan(timedelta(milliseconds=self.idle_limit))
            self.end_forced(f"{kind}.IdleTimerExpired: Idle timeout: {limit}.")
        return None if self.idle_limit is None or self.is_over else self.used_at + self.idle_limit

    def end_forced(self, details: str, code: str = "") -> None:
        """End the link as the service does on its own account."""
        code = code or f"{'consumer' if self.peer.role else 'publisher'}(link{self.handle})"
        text = f"The link '{self.peer.name}' is force detached. Code: {code}. Details: {details}"
        self.force_detach(Refusal(errors.DETACH_FORCED, text))

    def detach(self, failure: AmqpError | None) -> None:
        """End the link from this side, with the reason if the peer gets one."""
        self.release()
        self.session.emit(performatives.detach(self.handle, closed=True, failure=failure))

    def force_detach(self, failure: AmqpError) -> None:
        """End the link, or refuse it if it is not open yet, because its entity or the right to use it is gone."""
        if self.is_over:
            return
        if self.is_attached:
            self.detach(failure)
        else:
            self.refuse(failure)

    def on_detach(self, *, closed: bool) -> None:
        """Answer the peer's detach, unless it answers the broker's."""
        if not self.is_over:
            self.release()
            self.session.emit(performatives.detach(self.handle, closed=closed))

    def release(self) -> None:
        """Release everything the link holds; nothing is sent."""
        if not self.is_over:
            self.is_over = True
            namespace = self.session.connection.namespace
            namespace.links.leave(self)
            namespace.timers.forget(self)
            if self.keeps_connection:
                self.session.connection.open_links.one_ended()
            if self.is_attached:
                self._note_access()
            self.on_release()

    def _note_access(self) -> None:
        if self.times is not None:
            self.times.accessed_at = milliseconds(self.session.connection.namespace.clock)

    def on_release(self) -> None:
        """Release what this kind of link holds."""

    def on_flow(self, flow: Flow) -> None:
        """Handle the peer's view of the link's credit."""

    def on_transfer(self, transfer: Transfer, payload: bytes) -> None:  # noqa: ARG002 - incoming links use the payload
        """Handle one frame of a delivery."""
        if not self.is_over:
            raise SessionViolation(NOT_ALLOWED, f"handle {transfer.handle}: the peer cannot send on this link")

    def pump(self) -> None:
        """Deliver what can be delivered."""


class UnansweredLink(Link):
    """A link whose attach is never answered, because of a fault."""

    def open(self) -> None:
        """Send nothing, and ignore what arrives."""
        self.is_over = True
