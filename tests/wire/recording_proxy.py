"""A proxy between a client and the broker that records the frames of the client and of the broker in order."""

import asyncio
import contextlib
from typing import Any, NamedTuple, Self

from shared.amqp.fields import Field, read_list
from shared.amqp.frames import HEADER

_FRAME = HEADER.size


class Sent(NamedTuple):
    """A frame: who sent it, on which channel, its performative and fields, and what follows them."""

    by_client: bool
    channel: int
    code: int
    fields: list[Field]
    payload: bytes

    def field(self, number: int) -> Any:
        """Return a field, None if it was left out at the end."""
        return self.fields[number] if number < len(self.fields) else None


class RecordingProxy:
    """Listens on a port of its own and forwards to the broker's."""

    def __init__(self, port: int) -> None:
        self.frames: list[Sent] = []
        self._target = port
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def sent(self, code: int, *, by_client: bool = True) -> list[Sent]:
        """Return the frames of one performative that one side has sent."""
        return [frame for frame in self.frames if frame.code == code and frame.by_client is by_client]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self._target)
        for source, sink, by_client in ((reader, target_writer, True), (target_reader, writer, False)):
            task = asyncio.create_task(self._forward(source, sink, by_client=by_client))
            self._tasks.add(task)

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, by_client: bool) -> None:
        pending = b""
        with contextlib.suppress(OSError), contextlib.closing(sink):
            while chunk := await source.read(65536):
                pending = self._record(pending + chunk, by_client=by_client)
                sink.write(chunk)
                await sink.drain()

    def _record(self, data: bytes, *, by_client: bool) -> bytes:
        while len(data) >= _FRAME:
            if data.startswith(b"AMQP"):
                data = data[_FRAME:]
                continue
            size, _, _, channel = HEADER.unpack_from(data)
            if len(data) < size:
                break
            if size > _FRAME:
                code, fields, end = read_list(data[_FRAME:size])
                self.frames.append(Sent(by_client, channel, code, fields, data[_FRAME + end : size]))
            data = data[size:]
        return data
