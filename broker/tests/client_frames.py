"""The frames of a client that says exactly what a test wants, and those that it hears."""

from typing import Any

from shared.amqp import performatives
from shared.amqp.codec import plain
from shared.amqp.fields import compose_list, number_field, read_list
from shared.amqp.frames import AMQP_HEADER, HEADER, compose
from shared.amqp.performatives import Attach, Flow, Open
from shared.amqp.values import NULL, Value, described, list_, string, ulong

CLOSED, ENDED, DETACHED = performatives.CLOSE, performatives.END, performatives.DETACH


def terminus(code: int, address: str, *rest: Value) -> Value:
    return described(ulong(code), list_([string(address), *rest]))


class ClientFrames:
    """What a client sends whose sessions have a window of some frames."""

    def __init__(
        self, *, window: int = 100, max_frame_size: int = 65536, channel_max: int = 10, idle_time_out: int = 60_000
    ) -> None:
        self.window = window
        opening = Open("me", max_frame_size, channel_max, idle_time_out)
        self.opening = compose(0, performatives.open_(opening))

    def preamble(self) -> bytes:
        """Return what opens a connection and its first session."""
        return AMQP_HEADER.encode() + self.opening + self.begin()

    def begin(self, channel: int = 0) -> bytes:
        fields = [b"\x40", number_field(0), number_field(self.window), number_field(5000)]
        return compose(channel, compose_list(performatives.BEGIN, fields))

    def attach(
        self,
        handle: int,
        *,
        receives: bool,
        address: str,
        channel: int = 0,
        filters: Value = NULL,
        properties: Value | None = None,
    ) -> bytes:
        source = terminus(0x28, address, *[NULL] * 6, filters) if receives else terminus(0x28, "me")
        target = terminus(0x29, "me" if receives else address)
        link = Attach(f"link-{handle}", handle, receives, 0, 1, source, target, 0, None, (), properties)
        return compose(channel, performatives.attach(link))

    def flow(
        self,
        handle: int,
        credit: int,
        *,
        delivery_count: int = 0,
        drain: bool = False,
        echo: bool = False,
        received: int = 0,
    ) -> bytes:
        state = Flow(1 + received, self.window, 0, 5000, handle, delivery_count, credit, drain=drain, echo=echo)
        return compose(0, performatives.flow(state))

    def transfer(self, handle: int, delivery_id: int, payload: bytes, *, more: bool = False, channel: int = 0) -> bytes:
        tag, size = delivery_id.to_bytes(16), len(payload)
        return performatives.transfer(channel, handle, delivery_id, tag, size, settled=False, more=more) + payload


def heard_in(stream: bytes) -> list[Any]:
    """Return the complete frames: (channel, code, fields, payload), protocol headers as bytes."""
    heard: list[Any] = []
    while len(stream) >= HEADER.size:
        if stream.startswith(b"AMQP"):
            heard.append(stream[:8])
            stream = stream[8:]
            continue
        size, _, _, channel = HEADER.unpack_from(stream)
        if len(stream) < size:
            break
        body = stream[8:size]
        if body:
            code, fields, stop = read_list(body)
            heard.append((channel, code, fields, body[stop:]))
        stream = stream[size:]
    return heard


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
