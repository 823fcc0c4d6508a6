"""The messages of a WebSocket, with pings that detect a broken connection."""

import asyncio
from collections.abc import Awaitable

import aiohttp

from busway_clients.errors import ConnectionEnded
from busway_clients.relay.clock import Clock, ended, is_done_within
from busway_clients.relay.endpoint import RelayEndpoint
from busway_clients.relay.opening import Socket

_ABNORMAL = 1006
_NO_STATUS = 1005
_MAX_REASON = 200
_CLOSE_SECONDS = 5.0
# Sent instead of 1006, which means an end without a code.
_GOING_AWAY = 1001


class Frames:
    """
    The messages of a WebSocket, one by one.

    If nothing comes for a while, a ping is sent; without an answer the connection counts as ended, since the other side
    or the network may fail without notice. Only a caller that waits for a message detects that.
    """

    def __init__(self, socket: Socket, endpoint: RelayEndpoint, clock: Clock, silence: float, patience: float) -> None:
        """Ping after *silence* seconds without a frame, and wait *patience* seconds for the next frame."""
        self._socket = socket
        self._place = endpoint.place
        self._asks = endpoint.keep_alive_by == "ping"
        self._clock = clock
        self._silence = silence
        self._patience = patience
        self._next: asyncio.Task[aiohttp.WSMessage] | None = None
        self._end: ConnectionEnded | None = None

    @property
    def end(self) -> ConnectionEnded | None:
        """Return how the connection has ended, None while it has not."""
        return self._end

    async def message(self) -> str | bytes:
        """Return the next message; raises ConnectionEnded. Cancelling it loses no message."""
        while True:
            if self._end is not None:
                raise self._end
            frame = await self._frame()
            if frame.type in {aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY}:
                data: str | bytes = frame.data
                return data
            if frame.type is aiohttp.WSMsgType.PING:
                await self._written(self._socket.pong(frame.data))
            elif frame.type is not aiohttp.WSMsgType.PONG:
                raise self._ended(frame)

    async def send(self, data: str | bytes) -> None:
        """Send a message; raise ConnectionEnded."""
        if self._end is not None:
            raise self._end
        await self._written(
            self._socket.send_str(data) if isinstance(data, str) else self._socket.send_bytes(data),
        )

    async def close(self, code: int, reason: str) -> None:
        """Close the WebSocket, and wait a few seconds for the other side to confirm."""
        if self._end is None:
            self._end = ConnectionEnded(f"{self._place}: closed here ({code})", code)
        closing = asyncio.ensure_future(self._socket.close(code=code, message=reason.encode()[:123]))
        try:
            await is_done_within(self._clock, _CLOSE_SECONDS, closing)
        finally:
            await ended(closing)
            if self._next is not None:
                await ended(self._next)
                self._next = None

    async def _frame(self) -> aiohttp.WSMessage:
        # The task continues if the caller is cancelled: cancelling a read would break the connection.
        if self._next is None:
            self._next = asyncio.ensure_future(self._socket.receive())
        pending = self._next
        while not await is_done_within(self._clock, self._silence, pending):
            await self._written(self._socket.ping() if self._asks else self._socket.pong())
            if self._asks and not await is_done_within(self._clock, self._patience, pending):
                text = f"{self._place}: no frame received, and a ping was not answered within {self._patience:g} s"
                self._end = ConnectionEnded(text, _ABNORMAL)
                await self.close(_GOING_AWAY, "")
                raise self._end
        self._next = None
        return pending.result()

    async def _written(self, writing: Awaitable[None]) -> None:
        try:
            await writing
        except (aiohttp.ClientError, OSError) as error:
            text = f"{self._place}: the connection broke ({type(error).__name__})"
            self._end = self._end or ConnectionEnded(text, _ABNORMAL)
            raise self._end from error

    def _ended(self, frame: aiohttp.WSMessage) -> ConnectionEnded:
        if self._end is None:
            if frame.type is aiohttp.WSMsgType.CLOSE:
                code = frame.data or _NO_STATUS
                reason = "".join(each for each in frame.extra or "" if each.isprintable())[:_MAX_REASON]
                text = f"{self._place}: closed by the other side with {code}" + (f" ({reason})" if reason else "")
            else:
                # aiohttp reports 1000 if there was no close frame, and its own code for an invalid frame.
                unread = frame.type is aiohttp.WSMsgType.ERROR and self._socket.close_code
                code = unread or _ABNORMAL
                text = f"{self._place}: the connection broke ({code})"
            self._end = ConnectionEnded(text, code)
        return self._end
