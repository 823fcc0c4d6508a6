"""
The address of the settlement service, which is opened at the first connection.

Its packages cost half a second and 33 MB, and most functions never call it. The worker is started with the address in
its arguments.
"""

import asyncio
import socket
from typing import TYPE_CHECKING

from host.settlement.actions import ActionsCache

if TYPE_CHECKING:
    from host.settlement.service import SettlementService

_HOST = "127.0.0.1"
_CHUNK = 64 * 1024


class SettlementRelay:
    """Passes connections on to the service, which it opens."""

    def __init__(self, cache: ActionsCache) -> None:
        """Reserve a port of this machine; the service acts on the messages in *cache*."""
        self._socket = socket.socket()
        self._socket.bind((_HOST, 0))
        self.port: int = self._socket.getsockname()[1]
        self._cache = cache
        self._opening = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self._service: SettlementService | None = None
        self._service_port = 0
        self._running: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._connected, sock=self._socket)

    async def stop(self) -> None:
        """End all connections, and the service if there is one."""
        if self._server is None:
            self._socket.close()
        else:
            self._server.close()
        for each in self._running:
            each.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        if self._service is not None:
            await self._service.stop()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in one
        self._running.add(task)
        try:
            service_reader, service_writer = await asyncio.open_connection(_HOST, await self.open())
            await asyncio.gather(_pass_on(reader, service_writer), _pass_on(service_reader, writer))
        finally:
            self._running.discard(task)
            writer.close()

    async def open(self) -> int:
        """Open the service if that was not done, and return its port."""
        async with self._opening:
            if self._service is None:
                from host.settlement.service import SettlementService  # noqa: PLC0415 - see above

                self._service = SettlementService(self._cache)
                self._service_port = await self._service.start()
            return self._service_port


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass  # the other direction ends as well
    finally:
        writer.close()
