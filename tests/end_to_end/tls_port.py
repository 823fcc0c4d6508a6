"""The port that Azure's namespaces have, with TLS, in front of a namespace of the local broker."""

import asyncio
import contextlib
import ssl
import threading
from typing import Self

PORT = 5671
ADDRESS = "127.0.0.1"


class TlsPort:
    """Listens where the SDKs look for a namespace of which they know only the host name; forwards to *target*."""

    def __init__(self, context: ssl.SSLContext, target: int) -> None:
        self._context = context
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        listening = asyncio.start_server(self._accept, ADDRESS, PORT, ssl=self._context)
        try:
            self._server = self._loop.run_until_complete(listening)
        except OSError:
            self._loop.close()
            raise
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        target_reader, target_writer = await asyncio.open_connection(ADDRESS, self._target)
        for source, sink in ((reader, target_writer), (target_reader, writer)):
            self._tasks.add(asyncio.create_task(_forward(source, sink)))


async def _forward(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError), contextlib.closing(sink):
        while chunk := await source.read(65536):
            sink.write(chunk)
            await sink.drain()
