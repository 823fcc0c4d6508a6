"""A client of the broker that sends and reads frames, without sockets and SDKs."""

import datetime as dt
from typing import Any

from busway_broker.config import HubConfig, LinkLimits, NamespaceConfig, QueueConfig, SharedAccessKey
from busway_broker.core.namespace import Namespace
from busway_broker.protocol.connection import Connection
from busway_broker.protocol.session import INCOMING_WINDOW
from shared.amqp import performatives
from shared.amqp.codec import plain
from shared.amqp.fields import compose_list, number_field, read_list
from shared.amqp.frames import AMQP_HEADER, HEADER, compose
from shared.amqp.performatives import Attach, Flow
from shared.amqp.sections import data
from shared.amqp.values import NULL, Value, described, list_, string, ulong
from shared.clock import ManualClock

CLOSED, ENDED, DETACHED = performatives.CLOSE, performatives.END, performatives.DETACH


def terminus(code: int, address: str, *rest: Value) -> Value:
    return described(ulong(code), list_([string(address), *rest]))


class Peer:
    """A client that sends exactly the given bytes."""

    def __init__(
        self,
        *,
        window: int = 100,
        max_frame_size: int = 65536,
        idle_time_out: int = 60_000,
        incoming_window: int = INCOMING_WINDOW,
        keys: tuple[SharedAccessKey, ...] = (),
        released_go_last: bool = False,
        links: LinkLimits = LinkLimits(),  # noqa: B008 - it does not change
        namespace: Namespace | None = None,
    ) -> None:
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
        self.window = window
        self.max_frame_size = max_frame_size
        self.idle_time_out = idle_time_out

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
        """Return what has been sent: (channel, code, fields, payload), protocol headers as bytes."""
        stream = self.connection.take_output()
        heard: list[Any] = []
        while stream:
            if stream.startswith(b"AMQP"):
                heard.append(stream[:8])
                stream = stream[8:]
                continue
            size, _, _, channel = HEADER.unpack_from(stream)
            body = stream[8:size]
            if body:
                code, fields, stop = read_list(body)
                heard.append((channel, code, fields, body[stop:]))
            stream = stream[size:]
        return heard

    def open(self) -> list[Any]:
        opening = performatives.open_(
            "me", max_frame_size=self.max_frame_size, channel_max=10, idle_time_out=self.idle_time_out
        )
        return self.say(AMQP_HEADER.encode(), compose(0, opening), self.begin())

    def begin(self, channel: int = 0) -> bytes:
        fields = [b"\x40", number_field(0), number_field(self.window), number_field(5000)]
        return compose(channel, compose_list(performatives.BEGIN, fields))

    def attach(self, handle: int, *, receives: bool, address: str, channel: int = 0, filters: Value = NULL) -> bytes:
        source = terminus(0x28, address, *[NULL] * 6, filters) if receives else terminus(0x28, "me")
        target = terminus(0x29, "me" if receives else address)
        link = Attach(f"link-{handle}", handle, receives, 0, 1, source, target, 0, None, (), None)
        return compose(channel, performatives.attach(link))

    def flow(
        self, handle: int, credit: int, *, delivery_count: int = 0, drain: bool = False, received: int = 0
    ) -> bytes:
        state = Flow(1 + received, self.window, 0, 5000, handle, delivery_count, credit, drain=drain, echo=False)
        return compose(0, performatives.flow(state))

    def transfer(self, handle: int, delivery_id: int, payload: bytes, *, more: bool = False, channel: int = 0) -> bytes:
        tag, size = delivery_id.to_bytes(16), len(payload)
        return performatives.transfer(channel, handle, delivery_id, tag, size, settled=False, more=more) + payload

    def send(self, *texts: bytes) -> list[Any]:
        """Attach a sender and send."""
        self.say(self.attach(9, receives=False, address="q"))
        return self.say(*(self.transfer(9, number, data(text)) for number, text in enumerate(texts)))


def error_of(heard: list[Any], code: int) -> object:
    """Return the condition in the one close, end or detach that was heard."""
    return error_and_text(heard, code)[0]


def error_and_text(heard: list[Any], code: int) -> tuple[object, object]:
    """Return the condition and the description in the one close, end or detach that was heard."""
    (fields,) = [fields for _, seen, fields, _ in (each for each in heard if isinstance(each, tuple)) if seen == code]
    error = plain(fields[-1])
    assert isinstance(error, list)
    return error[0], error[1]


def codes(heard: list[Any]) -> list[int]:
    return [each[1] for each in heard if isinstance(each, tuple)]
