"""
The HTTP server of a port of the broker: how long a client may hold a connection there without a request.

It reports what arrives, so that an unfinished message of a WebSocket counts as held.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from aiohttp import web

from busway_broker.protocol.connection import HANDSHAKE_SECONDS

# A damaged request is answered with its error; aiohttp would log a traceback too.
_LOG = logging.getLogger(__name__)
_LOG.setLevel(logging.CRITICAL)

_LINGERING_SECONDS = 10.0
"""How long a request is read on that was answered before its end, so that a client that still sends sees the answer."""

type Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class HttpConnection(web.RequestHandler):
    """A connection; it calls `arrived` with the number of bytes whenever some arrive."""

    __slots__ = ("arrived",)

    arrived: Callable[[int], None] | None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Serve a new connection."""
        self.arrived = None
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Handle bytes that have arrived."""
        super().data_received(data)
        if self.arrived is not None:
            self.arrived(len(data))


class HttpServer(web.Server):
    """Closes a connection that sends no request, or not the whole of its headers, within *seconds*."""

    def __init__(self, answer: Answer, seconds: float = HANDSHAKE_SECONDS) -> None:
        lingering = min(seconds, _LINGERING_SECONDS)
        super().__init__(answer, access_log=None, logger=_LOG, keepalive_timeout=seconds, lingering_time=lingering)

    def __call__(self) -> HttpConnection:
        """Return the protocol of a new connection."""
        return HttpConnection(self, loop=self._loop, **self._kwargs)


async def body_of(request: web.BaseRequest, seconds: float = HANDSHAKE_SECONDS) -> bytes:
    """Return the body of a request; raises HTTPRequestTimeout if it does not arrive within *seconds*."""
    try:
        async with asyncio.timeout(seconds):
            return await request.read()
    except TimeoutError as error:
        raise web.HTTPRequestTimeout from error
