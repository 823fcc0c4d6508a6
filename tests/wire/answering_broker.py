"""
An AMQP 1.0 broker that answers transfers as a test says, for what the project's own broker never does.

It serves senders only, over real sockets, in the event loop of the test.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

from shared.amqp import performatives, sasl
from shared.amqp.codec import decode, encode, items_of
from shared.amqp.frames import AMQP_HEADER, SASL_HEADER
from shared.amqp.scan import join_list
from shared.amqp.values import NULL, TRUE, Array, Described, Value, array, described, list_, string, symbol, uint, ulong

ACCEPTED = described(ulong(performatives.ACCEPTED), list_([]))
RELEASED = described(ulong(performatives.RELEASED), list_([]))
MODIFIED = described(ulong(performatives.MODIFIED), list_([TRUE, TRUE]))
CLOSE, SILENCE = "close", "silence"

type Answer = Value | str
"""An outcome; or `close` to cut the connection, or `silence`."""


def rejected(condition: str | None = None, description: str = "") -> Value:
    """Return the outcome rejected, with an error if there is a condition."""
    fields = [] if condition is None else [error(condition, description)]
    return described(ulong(performatives.REJECTED), list_(fields))


def error(condition: str, description: str = "") -> Value:
    """Return an error."""
    return described(ulong(0x1D), list_([symbol(condition), string(description)]))


class AnsweringBroker:
    """Takes messages and answers each with what *answer* returns for its number, from 0, and its bytes."""

    def __init__(
        self,
        answer: Callable[[int, bytes], Answer] = lambda _number, _content: ACCEPTED,
        *,
        credit: int = 100,
        largest_frame: int = 65_536,
        largest_message: int = 0,
        window: int = 2_000,
        attach_error: tuple[str, str] | None = None,
        sasl_code: int = 0,
        detach: tuple[int, str] | None = None,
    ) -> None:
        """Detach with a condition after the number of messages in *detach*; refuse the link with *attach_error*."""
        self.answer = answer
        self.credit = credit
        self.contents: list[bytes] = []
        self.connections = 0
        self.attached: list[tuple[str, str | None]] = []
        self._largest_frame = largest_frame
        self._largest_message = largest_message
        self._window = window
        self._attach_error = attach_error
        self._sasl_code = sasl_code
        self._detach = detach
        self._servers: list[asyncio.Server] = []
        self.port = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Yield the URL while it listens."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield f"amqp://busway:secret@127.0.0.1:{self.port}"
        finally:
            server.close()
            server.close_clients()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await Peer(self, reader, writer).run()
        writer.close()

    async def start(self, peer: "Peer") -> bool:
        """Authenticate; return whether the peer may go on."""
        await peer.header(SASL_HEADER.encode())
        peer.send(sasl.MECHANISMS, [array(0xA3, [symbol("PLAIN")])], kind=1)
        await peer.frame()
        peer.send(sasl.OUTCOME, [Value(0x50, self._sasl_code)], kind=1)
        if self._sasl_code:
            return False
        await peer.header(AMQP_HEADER.encode())
        return True

    def attach(self, peer: "Peer", fields: Sequence[Value]) -> None:
        """Answer an attach and grant credit, or refuse it."""
        target = fields[6].payload
        assert isinstance(target, Described)
        terminus = items_of(target.value)
        capability = terminus[6].payload if len(terminus) > 6 else None
        self.attached.append(
            (str(terminus[0].payload), str(capability.items[0].payload) if isinstance(capability, Array) else None)
        )
        refused = self._attach_error
        answer = [fields[0], uint(0), TRUE, NULL, NULL, fields[5], NULL if refused else fields[6]]
        peer.send(performatives.ATTACH, [*answer, NULL, NULL, NULL, Value(0x80, self._largest_message)])
        if refused:
            peer.send(performatives.DETACH, [uint(0), TRUE, error(*refused)])
        elif self.credit:
            self.grant(peer, 0)

    def grant(self, peer: "Peer", delivery_count: int) -> None:
        """Send a flow with the credit and the window."""
        window = [uint(peer.transfers), uint(self._window), uint(0), uint(100)]
        peer.send(performatives.FLOW, [*window, uint(0), uint(delivery_count), uint(self.credit)])

    def opened(self, peer: "Peer") -> None:
        """Answer an open."""
        peer.send(performatives.OPEN, [string("answering"), NULL, uint(self._largest_frame), NULL, uint(500)])

    def begun(self, peer: "Peer") -> None:
        """Answer a begin."""
        peer.send(performatives.BEGIN, [Value(0x60, 0), uint(0), uint(self._window), uint(100)])

    def flowed(self, peer: "Peer", fields: Sequence[Value]) -> None:
        """Take a flow of the sender."""

    async def take(self, peer: "Peer", delivery: int, content: bytes) -> bool:
        """Answer one message; return whether the connection stays."""
        number = len(self.contents)
        self.contents.append(content)
        if self._detach is not None and number + 1 == self._detach[0]:
            peer.send(performatives.DETACH, [uint(0), TRUE, error(self._detach[1], "said the test")])
            return True
        found = self.answer(number, content)
        if found == CLOSE:
            return False
        if isinstance(found, Value):
            peer.send(performatives.DISPOSITION, [TRUE, uint(delivery), uint(delivery), TRUE, found])
        self.grant(peer, delivery + 1)
        return True


class Peer:
    """One connection."""

    def __init__(self, broker: AnsweringBroker, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.transfers = 0
        self._broker = broker
        self._reader = reader
        self._writer = writer

    async def run(self) -> None:
        broker = self._broker
        if not await broker.start(self):
            return
        parts: list[bytes] = []
        delivery = 0
        while True:
            code, fields, payload = await self.frame()
            if code == performatives.OPEN:
                broker.opened(self)
            elif code == performatives.BEGIN:
                broker.begun(self)
            elif code == performatives.ATTACH:
                broker.attach(self, fields)
            elif code == performatives.FLOW:
                broker.flowed(self, fields)
            elif code == performatives.TRANSFER:
                self.transfers += 1
                parts.append(payload)
                if fields[1].payload is not None:
                    delivery = int(str(fields[1].payload))
                if fields[5].payload is True:
                    broker.grant(self, delivery)
                    continue
                if not await broker.take(self, delivery, b"".join(parts)):
                    return
                parts = []
            elif code == performatives.CLOSE:
                return

    def cut(self) -> None:
        self._writer.close()

    async def header(self, expected: bytes) -> None:
        assert await self._reader.readexactly(8) == expected
        self._writer.write(expected)

    async def frame(self) -> tuple[int, Sequence[Value], bytes]:
        while True:
            head = await self._reader.readexactly(8)
            body = await self._reader.readexactly(int.from_bytes(head[:4]) - 8)
            if body:
                break
        value, stop = decode(body)
        assert isinstance(value.payload, Described)
        return int(str(value.payload.descriptor.payload)), items_of(value.payload.value), body[stop:]

    def send(self, code: int, fields: Sequence[Value], kind: int = 0) -> None:
        body = join_list(b"\x00\x53" + code.to_bytes(), [encode(field) for field in fields])
        self._writer.write((8 + len(body)).to_bytes(4) + b"\x02" + kind.to_bytes() + b"\x00\x00" + body)
