"""
Receiving the bytes of messages through Microsoft's SDKs, below their decoders.

azure-servicebus and azure-eventhub decode every message and keep no copy of its bytes; encoding it again loses types.
Therefore the SDK opens the connection, authenticates and negotiates, and then this module reads the socket:

1. transfers of its own links, and their dispositions, are read here, and payloads are passed on unchanged; each link
   has an AMQP session of its own, as in .NET, and a token is put before it is attached;
2. every other frame goes to the SDK, which handles flow, attach, tokens, management requests and closing;
3. `transport.receive_frame` is replaced by waiting for this module's reader, so that the SDK's own loops continue.

This module, `raw_link` and the two that open connections are the only ones that touch the private parts of the SDKs and
of the pyamqp that each of them carries; tests/contracts/test_receive_seam.py holds the names. Both SDKs agree in these.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from shared.amqp.values import Malformed
from shared.azure.receivers import frames
from shared.azure.receivers.raw_link import Delivery, LinkClosed, RawLink, refused_or_closed
from shared.azure.receivers.settlement import Settlement
from shared.errors import BuswayError

_CHUNK = 1 << 17
_FRAME_HEADER = 8
_TEND_SECONDS = 5.0
_SETTLEMENT_SECONDS = 60.0
_SILENCE_SECONDS = 60.0
_SERIAL = 0xFFFFFFFF
# .NET's values, measured: half of the time after which it gives up is announced.
OPEN_VALUES = {"max_frame_size": 65_536, "channel_max": 8_191, "idle_timeout": 30}
_BEGIN_VALUES = {"incoming_window": 2**32 - 1, "outgoing_window": 5_000}


class MicrosoftSasl:
    """The SASL mechanism of Microsoft's libraries: the token follows over `$cbs`."""

    mechanism = b"MSSBCBS"

    def start(self) -> bytes:
        """Return the initial response."""
        return b""


type DecodeFrame = Callable[[memoryview], tuple[int, list[Any]]]


class RawConnection:
    """A connection that the SDK has opened, read by this module; made by `take_over`."""

    def __init__(self, where: str, client: Any, decode_frame: DecodeFrame) -> None:
        """Wrap an SDK's AMQP client and that SDK's frame decoder; *where* names the entity in errors and logs."""
        self.where = where
        self._client = client
        self._connection = client._connection
        self._transport = self._connection._transport
        self._decode_frame = decode_frame
        self._links: dict[int, RawLink] = {}  # by the channel on which the service sends
        self._ending: set[int] = set()
        self._authorizing = asyncio.Lock()
        self._has_fresh_token = True  # put when the connection was opened
        self._progress = asyncio.Event()
        self._error: BaseException | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def take_over(cls, where: str, client: Any, decode_frame: DecodeFrame) -> "RawConnection":
        """Start reading the socket of an opened and authenticated client."""
        self = cls(where, client, decode_frame)
        self._connection._idle_timeout = None
        async with self._transport.socket_lock:  # locked while the SDK reads
            self._transport.receive_frame = self._receive_frame
            left_over = self._transport._read_buffer.read()
        self._tasks = [asyncio.create_task(self._read(left_over)), asyncio.create_task(self._tend())]
        return self

    @property
    def is_broken(self) -> bool:
        """Return whether the connection has ended."""
        return self._error is not None

    async def attach(
        self,
        source: Any,
        properties: dict[Any, Any],
        prefetch: int = 0,
        *,
        drains: bool = False,
        is_settled: bool = False,
        **link: Any,
    ) -> "RawLink":
        """
        Return a new link to *source* after the service has accepted it.

        Raises: TargetRefused and LinkClosed, if the service refuses it.
        """
        await self._authorize()
        session = self._connection.create_session(**_BEGIN_VALUES)
        await session.begin()
        while session.state.name == "BEGIN_SENT":
            self.raise_if_broken()
            await self.progress(_TEND_SECONDS)
        raw = RawLink(self, session, prefetch, drains=drains, is_settled=is_settled)
        self._links[self._incoming_channel(session)] = raw
        raw.link = session.create_receiver_link(
            source_address=source,
            link_credit=0,
            on_transfer=None,
            on_attach=raw.attached,
            properties=properties,
            **link,
        )
        raw.link._incoming_flow = raw.flowed
        raw.link._outgoing_flow = _no_flow
        try:
            await raw.link.attach()
            await raw.start()
            while not raw.is_attached:
                self.raise_if_broken()
                raw.raise_if_closed()
                await self.progress(_TEND_SECONDS)
        except BaseException:
            await self.detach(raw)
            raise
        return raw

    async def detach(self, raw: "RawLink") -> None:
        """Close a link and end its session."""
        with contextlib.suppress(OSError):
            await raw.link.detach(close=True)
            await raw.session.end()
        for channel, link in list(self._links.items()):
            if link is raw:
                del self._links[channel]
                self._ending.add(channel)
        for settlement in set(raw.unsettled.values()):
            settlement.fail(LinkClosed(f"{self.where}: the link is closed", "closed by this side"))

    async def _authorize(self) -> None:
        """Put a token, unless the one of the opened connection was not used yet."""
        if self._has_fresh_token:
            self._has_fresh_token = False
            return
        authenticator = self._client._cbs_authenticator
        try:
            async with self._authorizing:
                await authenticator.update_token()
                while not await authenticator.handle_token():
                    self.raise_if_broken()
                    await self.progress(_TEND_SECONDS)
        except BuswayError:
            raise
        except Exception as error:  # errors of the SDK, azure-core or the socket
            raise refused_or_closed(self.where, error) from error

    def _incoming_channel(self, session: Any) -> int:
        """Return the channel on which the service sends for a session, or -1 before it has begun."""
        endpoints = self._connection._incoming_endpoints
        return next((channel for channel, endpoint in endpoints.items() if endpoint is session), -1)

    async def settle(
        self, link: RawLink, deliveries: Sequence[Delivery], outcome: int, state: bytes | None = None
    ) -> dict[int, str]:
        """
        Settle the deliveries of a link and return the failures: delivery id → condition.

        *state* is the encoded outcome if it has fields.

        Each gets a disposition, and all are sent before the first confirmation is awaited, as .NET settles in parallel.
        A lost lock is in the result, not an exception.
        """
        self.raise_if_broken()
        settlement = Settlement(link, {delivery.delivery_id for delivery in deliveries}, outcome)
        settlement.look()
        if settlement.done.done():
            return settlement.failures
        link.unsettled.update(dict.fromkeys(settlement.waiting, settlement))
        await self._dispositions(link, deliveries, outcome, settled=False, state=state)
        try:
            await asyncio.wait_for(settlement.done, _SETTLEMENT_SECONDS)
        except TimeoutError:
            return settlement.failures | dict.fromkeys(settlement.waiting, "no answer")
        finally:
            for delivery_id in settlement.waiting:
                link.unsettled.pop(delivery_id, None)
        await link.restore(len(deliveries))
        return settlement.failures

    async def release(self, raw: "RawLink", deliveries: Sequence[Delivery]) -> None:
        """Release deliveries without counting them as delivered."""
        if deliveries:
            await self._dispositions(raw, deliveries, frames.RELEASED, settled=True)

    async def close(self) -> None:
        """Close the connection; unsettled messages return to the service."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._break(ConnectionError("closed by this side"))
        with contextlib.suppress(Exception):  # the SDK may raise anything if the peer is gone
            await asyncio.wait_for(self._client.close_async(), 1.0)

    async def progress(self, seconds: float) -> None:
        """Wait until something has been read, or until the timeout."""
        self._progress.clear()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._progress.wait(), seconds)

    async def flow(self, raw: "RawLink", credit: int, *, drain: bool = False) -> None:
        """Set the credit of the link to *credit* messages."""
        self.raise_if_broken()
        raw.credit = credit
        state = {
            "handle": raw.link.handle,
            "delivery_count": raw.link.delivery_count,
            "link_credit": credit,
            "drain": drain,
        }
        await raw.session._outgoing_flow(state)

    async def _dispositions(
        self,
        raw: "RawLink",
        deliveries: Sequence[Delivery],
        outcome: int,
        *,
        settled: bool,
        state: bytes | None = None,
    ) -> None:
        delivery_ids = [delivery.delivery_id for delivery in deliveries]
        channel = raw.session.channel
        written = frames.write_dispositions(channel, delivery_ids, outcome, settled=settled, state=state)
        try:
            await self._transport.write(written)
        except OSError as error:
            self._break(error)
            self.raise_if_broken()
        self._connection._last_frame_sent_time = time.time()

    def raise_if_broken(self) -> None:
        """Raise the error that ended the connection, if it has ended."""
        if self._error is not None:
            raise refused_or_closed(self.where, self._error) from self._error

    def _break(self, error: BaseException) -> None:
        self._error = self._error or error
        for raw in self._links.values():
            for settlement in set(raw.unsettled.values()):
                settlement.fail(refused_or_closed(self.where, error))
            raw.wake()
        self._progress.set()

    async def _receive_frame(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature of the replaced method
        **_: Any,
    ) -> tuple[None, None]:
        """Replace the transport's own reading, which returns no frame to the caller; this module may have read one."""
        if self._error is not None:
            raise OSError(str(self._error)) from self._error
        await self.progress(_TEND_SECONDS if timeout is None else timeout)
        return None, None

    async def _tend(self) -> None:
        """Let the SDK renew the token, send heartbeats and check those of the service."""
        try:
            while self._error is None:
                await asyncio.sleep(_TEND_SECONDS)
                await self._client.auth_complete_async()
                await self._connection.listen(wait=0.01)
                if self._connection._error is not None:
                    self._break(self._connection._error)
                if time.time() - self._connection._last_frame_received_time > _SILENCE_SECONDS:
                    self._break(ConnectionError(f"the service was silent for {_SILENCE_SECONDS:.0f} s"))
        except Exception as error:  # noqa: BLE001 - whatever the SDK raises here, the connection is unusable
            self._break(error)

    async def _read(self, left_over: bytes) -> None:
        reader = self._transport.reader
        try:
            while self._error is None:
                chunk = await reader.read(_CHUNK)
                if not chunk:
                    self._break(ConnectionResetError("the peer closed the connection"))
                    return
                left_over = await self._process(left_over + chunk if left_over else chunk)
        except Exception as error:  # noqa: BLE001 - errors of the socket, of invalid frames, of pyamqp
            self._break(error)

    async def _process(self, data: bytes) -> bytes:
        """Process the complete frames in *data* and return the remaining bytes."""
        position, size = 0, len(data)
        while size - position >= _FRAME_HEADER:
            length = int.from_bytes(data[position : position + 4])
            if length < _FRAME_HEADER:
                raise Malformed(f"frame of {length} bytes, expected at least {_FRAME_HEADER}")
            end = position + length
            if end > size:
                break
            body = position + 4 * data[position + 4]
            kind = data[body + 2] if end > body + 2 else 0
            channel = int.from_bytes(data[position + 6 : position + 8])
            raw = self._links.get(channel)
            if kind == frames.TRANSFER and raw is not None:
                raw.session.next_incoming_id = (raw.session.next_incoming_id + 1) & _SERIAL
                raw.transferred(frames.read_transfer(data, body, end))
            elif kind == frames.DISPOSITION and raw is not None:
                self._settled(raw, frames.read_disposition(data, body, end))
            elif channel in self._ending and kind != frames.END:
                pass  # the SDK breaks the connection if a link that was never attached is detached
            elif end > body:
                self._ending.discard(channel)
                await self._hand_to_sdk(channel, data[body:end])
            position = end
        self._connection._last_frame_received_time = time.time()
        for raw in list(self._links.values()):
            raw.look()
            for settlement in set(raw.unsettled.values()):
                settlement.look()
            stray, raw.stray = raw.stray, []
            await self.release(raw, stray)
        self._progress.set()
        return data[position:]

    async def _hand_to_sdk(self, channel: int, body: bytes) -> None:
        frame = self._decode_frame(memoryview(body))
        await self._connection._process_incoming_frame(channel, frame)
        error = self._connection._error
        if error is not None:
            raise error

    @staticmethod
    def _settled(raw: "RawLink", disposition: frames.Disposition | None) -> None:
        if disposition is None or not disposition.settled:
            return
        # The peer chooses the range: iterate over it only if it is not longer than the pending ids.
        if disposition.last - disposition.first < len(raw.unsettled):
            delivery_ids: Sequence[int] = range(disposition.first, disposition.last + 1)
        else:
            delivery_ids = [one for one in raw.unsettled if disposition.first <= one <= disposition.last]
        for delivery_id in delivery_ids:
            settlement = raw.unsettled.pop(delivery_id, None)
            if settlement is not None:
                settlement.answered(delivery_id, disposition)


async def _no_flow(**_: Any) -> None:
    """Replace the flows that pyamqp sends by itself; `RawConnection.flow` sends those of the link."""
