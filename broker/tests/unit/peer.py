"""A client of the broker that sends and reads frames, without sockets and SDKs."""

import datetime as dt
from typing import Any

from broker.tests.client_frames import ClientFrames, heard_in
from busway_broker.config import HubConfig, LinkLimits, NamespaceConfig, QueueConfig, SharedAccessKey
from busway_broker.core.namespace import Namespace
from busway_broker.protocol.connection import Connection
from busway_broker.protocol.session import INCOMING_WINDOW
from shared.amqp.sections import data
from shared.clock import ManualClock


class Peer(ClientFrames):
    """A client that sends exactly the given bytes."""

    def __init__(
        self,
        *,
        incoming_window: int = INCOMING_WINDOW,
        keys: tuple[SharedAccessKey, ...] = (),
        released_go_last: bool = False,
        links: LinkLimits = LinkLimits(),  # noqa: B008 - it does not change
        namespace: Namespace | None = None,
        **sizes: int,
    ) -> None:
        super().__init__(**sizes)
        clock = ManualClock(dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
        config = NamespaceConfig(
            name="n",
            queues=(QueueConfig(name="q"), QueueConfig(name="s", requires_session=True)),
            hubs=(HubConfig(name="h"),),
            shared_access_keys=keys,
            released_go_last=released_go_last,
            links=links,
        )
        self.namespace = Namespace(config, clock) if namespace is None else namespace
        self.connection = Connection(self.namespace, lambda: None, incoming_window=incoming_window)

    def say(self, *parts: bytes) -> list[Any]:
        self.connection.receive(b"".join(parts))
        return self.heard()

    def wait(self, seconds: float) -> list[Any]:
        """Return what is sent while time passes."""
        clock = self.namespace.clock
        assert isinstance(clock, ManualClock)
        clock.advance(seconds)
        self.namespace.advance()
        return self.heard()

    def heard(self) -> list[Any]:
        """Return what has been sent since the last time."""
        return heard_in(self.connection.take_output())

    def open(self) -> list[Any]:
        return self.say(self.preamble())

    def send(self, *texts: bytes) -> list[Any]:
        """Attach a sender and send."""
        self.say(self.attach(9, receives=False, address="q"))
        return self.say(*(self.transfer(9, number, data(text)) for number, text in enumerate(texts)))


def opened(*links: tuple[int, bool, str], **options: Any) -> Peer:
    """Return a client with links: the handle, whether it receives, and the address."""
    peer = Peer(**options)
    peer.open()
    for handle, receives, address in links:
        peer.say(peer.attach(handle, receives=receives, address=address))
    return peer
