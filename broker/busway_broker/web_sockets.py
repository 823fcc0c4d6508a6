"""
AMQP over WebSockets, on the port of AMQP: `ws`, and `wss` where the port has TLS.

A connection that begins with an HTTP request is passed to aiohttp. The bytes in binary messages are those of an AMQP
connection, cut anywhere.

Source: "Advanced Message Queuing Protocol (AMQP) WebSocket Binding (WSB) Version 1.0" (OASIS working draft).
"""

import asyncio
import contextlib

from aiohttp import WSMsgType, web

from busway_broker.admin.origin import is_loopback, is_own_host, is_own_origin
from busway_broker.http_server import HttpConnection, HttpServer
from busway_broker.listener import READ_SIZE, Listener

PATH = "/$servicebus/websocket"
# Service Bus documents the second one; the Python SDK asks for it, others for the one in the registry.
PROTOCOLS = ("amqp", "AMQPWSB10")
MAX_MESSAGE_SIZE = 16 * 1024 * 1024

_PAUSED_AT = 64 * 1024
# At least as large as the header of a part: what was counted must not add up while whole messages arrive.
_HEADER_SIZE = 14


class WebSockets:
    """The HTTP server for the connections of one port."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._server = HttpServer(self._serve)

    def take(self, transport: asyncio.Transport, data: bytes) -> None:
        """Serve a connection from now on, which has sent *data*."""
        protocol = self._server()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(data)

    async def close(self) -> None:
        """Close the connections that are no WebSockets, or not any more."""
        await self._server.shutdown(0)

    async def _serve(self, request: web.BaseRequest) -> web.StreamResponse:
        response = await self.answer(request)
        # Nobody who speaks HTTP alone has another question for this port.
        response.force_close()
        return response

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Serve a WebSocket until one side closes it, or answer what is wrong with the request."""
        if request.path.rstrip("/") != PATH:
            return web.Response(status=400, text=f"this port is for AMQP, and for WebSockets at {PATH}\n")
        is_foreign = is_loopback(self._listener.host) and not is_own_host(request)
        if is_foreign or not is_own_origin(request):
            return web.Response(status=403, text="the request is from another host or web page\n")
        socket = web.WebSocketResponse(protocols=PROTOCOLS, max_msg_size=MAX_MESSAGE_SIZE, compress=False)
        if not socket.can_prepare(request).ok:
            return web.Response(status=426, headers={"Upgrade": "websocket"}, text="expected a WebSocket\n")
        await socket.prepare(request)
        if socket.ws_protocol is None:
            await socket.close(code=1002, message=b"expected the subprotocol amqp")
        else:
            await WebSocketTransport(socket, request, self._listener).run()
        return socket


def web_sockets_of(listener: Listener) -> WebSockets:
    """Return the HTTP server of a port, created at its first use."""
    found = listener.web_sockets
    if not isinstance(found, WebSockets):
        found = listener.web_sockets = WebSockets(listener)
    return found


class WebSocketTransport(asyncio.Transport):
    """A WebSocket as the transport of an AMQP connection."""

    def __init__(self, socket: web.WebSocketResponse, request: web.BaseRequest, listener: Listener) -> None:
        assert request.transport is not None  # noqa: S101 - the connection has just been answered
        super().__init__({name: request.transport.get_extra_info(name) for name in ("socket", "ssl_object")})
        self._socket = socket
        self._under = request.transport
        self._unread = 0
        if isinstance(request.protocol, HttpConnection):
            request.protocol.arrived = self._arrived
        self._listener = listener
        self._peer = listener.connect(listener, is_web_socket=True)
        self._output: list[bytes] = []
        self._size = 0
        self._is_paused = False
        self._is_closing = False
        self._has_output = asyncio.Event()
        self._reads = asyncio.Event()
        self._reads.set()

    async def run(self) -> None:
        """Serve the connection until one side closes it."""
        self._peer.connection_made(self)
        writer = asyncio.create_task(self._write_output())
        try:
            async for message in self._socket:
                if message.type is not WSMsgType.BINARY:
                    await self._socket.close(code=1003, message=b"expected binary messages")
                    break
                self._count(max(self._unread - len(message.data) - _HEADER_SIZE, 0))
                self._receive(message.data)
                await self._reads.wait()
        finally:
            writer.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await writer
            self._peer.connection_lost(None)

    def _arrived(self, size: int) -> None:
        self._count(self._unread + size)
        if self._is_closing:
            # The client knows the reason, and still sends: it must not go on until it answers the close.
            self.abort()

    def _count(self, unread: int) -> None:
        """Let what has arrived of messages that are not complete count as held."""
        change, self._unread = unread - self._unread, unread
        self._peer.hold(change)

    def _receive(self, data: bytes) -> None:
        for start in range(0, len(data), READ_SIZE):
            part = data[start : start + READ_SIZE]
            self._listener.buffer[: len(part)] = part
            self._peer.buffer_updated(len(part))

    async def _write_output(self) -> None:
        while not self._is_closing or self._output:
            await self._has_output.wait()
            self._has_output.clear()
            output, self._output, self._size = self._output, [], 0
            if output:
                await self._socket.send_bytes(b"".join(output))
            if self._is_paused and not self._output:
                self._is_paused = False
                self._peer.resume_writing()
        await self._socket.close()

    # What the connection uses of a transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send data as soon as the client reads it."""
        self._output.append(bytes(data))
        self._size += len(data)
        self._has_output.set()
        if self._size > _PAUSED_AT and not self._is_paused:
            self._is_paused = True
            self._peer.pause_writing()

    def close(self) -> None:
        """Close the WebSocket after what was written."""
        self._is_closing = True
        self._has_output.set()

    def is_closing(self) -> bool:
        """Return whether it is closed, or about to be."""
        return self._is_closing or self._socket.closed

    def abort(self) -> None:
        """Break the connection."""
        self._under.abort()

    def pause_reading(self) -> None:
        """Read nothing until `resume_reading`."""
        self._reads.clear()

    def resume_reading(self) -> None:
        """Read again."""
        self._reads.set()
