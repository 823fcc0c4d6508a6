"""
Receiving the bytes of messages through Microsoft's SDKs, below their decoders.

azure-servicebus and azure-eventhub decode every message and keep no copy of its bytes; encoding it again loses types.
Therefore the SDK opens the connection, authenticates and negotiates, and then this module reads the socket:

1. transfers of its own links, and dispositions, are read here, and payloads are passed on unchanged;
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

from local.host import frames
from local.host.raw_link import Delivery, RawLink, refused_or_closed
from local.host.settlement import Settlement
from shared.amqp.values import Malformed

_CHUNK = 1 << 17
_FRAME_HEADER = 8
_TEND_SECONDS = 5.0
_SETTLEMENT_SECONDS = 60.0


type DecodeFrame = Callable[[memoryview], tuple[int, list[Any]]]


class RawConnection:
    """A connection that the SDK has opened, read by this module; made by `take_over`."""

    def __init__(self, where: str, client: Any, decode_frame: DecodeFrame) -> None:
        """Wrap an SDK's AMQP client and that SDK's frame decoder; *where* names the entity in errors and logs."""
        self.where = where
        self._client = client
        self._connection = client._connection  # noqa: SLF001 - the seam, see above
        self._session = client._session  # noqa: SLF001
        self._transport = self._connection._transport  # noqa: SLF001
        self._decode_frame = decode_frame
        self._links: dict[int, RawLink] = {}
        self._unsettled: dict[int, Settlement] = {}
        self._progress = asyncio.Event()
        self._error: BaseException | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @classmethod
    async def take_over(cls, where: str, client: Any, decode_frame: DecodeFrame) -> "RawConnection":
        """Start reading the socket of an opened and authenticated client."""
        self = cls(where, client, decode_frame)
        async with self._transport.socket_lock:  # locked while the SDK reads
            self._transport.receive_frame = self._receive_frame
            left_over = self._transport._read_buffer.read()  # noqa: SLF001
        self._tasks = [asyncio.create_task(self._read(left_over)), asyncio.create_task(self._tend())]
        return self

    @property
    def is_broken(self) -> bool:
        """Return whether the connection has ended."""
        return self._error is not None

    async def attach(self, source: Any, properties: dict[Any, Any], prefetch: int = 0, **link: Any) -> "RawLink":
        """
        Return a new link to *source* after the service has accepted it.

        Raises: TargetRefused and LinkClosed, if the service refuses it.
        """
        raw = RawLink(self, prefetch)
        raw.link = self._session.create_receiver_link(
            source_address=source,
            link_credit=0,
            on_transfer=None,
            on_attach=raw.attached,
            properties=properties,
            **link,
        )
        raw.link._incoming_flow = raw.flowed  # noqa: SLF001 - pyamqp ignores the flow that ends a drain
        try:
            await raw.link.attach()
            while not raw.is_attached:
                self.raise_if_broken()
                raw.raise_if_closed()
                await self.progress(_TEND_SECONDS)
        except BaseException:
            self._forget(raw)
            raise
        self._links[raw.link.remote_handle] = raw
        return raw

    async def detach(self, raw: "RawLink") -> None:
        """Close a link and remove it; pyamqp would keep it until the connection ends."""
        with contextlib.suppress(OSError):
            await raw.link.detach(close=True)
        self._forget(raw)

    async def settle(self, link: RawLink, deliveries: Sequence[Delivery], outcome: int) -> dict[int, str]:
        """
        Settle the deliveries of a link and return the failures: delivery id → condition.

        Contiguous ids are one disposition, and all are sent before the first confirmation is awaited, as .NET settles
        in parallel. A lost lock is in the result, not an exception.
        """
        self.raise_if_broken()
        settlement = Settlement(link, {delivery.delivery_id for delivery in deliveries}, outcome)
        settlement.look()
        if settlement.done.done():
            return settlement.failures
        self._unsettled.update(dict.fromkeys(settlement.waiting, settlement))
        await self._dispositions(deliveries, outcome, settled=False)
        try:
            await asyncio.wait_for(settlement.done, _SETTLEMENT_SECONDS)
        except TimeoutError:
            return settlement.failures | dict.fromkeys(settlement.waiting, "no answer")
        finally:
            for delivery_id in settlement.waiting:
                self._unsettled.pop(delivery_id, None)
        return settlement.failures

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        """Release deliveries without counting them as delivered."""
        if deliveries:
            await self._dispositions(deliveries, frames.RELEASED, settled=True)

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
        await raw.link.flow(link_credit=credit, drain=drain)

    async def _dispositions(self, deliveries: Sequence[Delivery], outcome: int, *, settled: bool) -> None:
        ranges = frames.contiguous(sorted(delivery.delivery_id for delivery in deliveries))
        channel = self._session.channel
        try:
            await self._transport.write(frames.write_dispositions(channel, ranges, outcome, settled=settled))
        except OSError as error:
            self._break(error)
            self.raise_if_broken()
        self._connection._last_frame_sent_time = time.time()  # noqa: SLF001

    def _forget(self, raw: "RawLink") -> None:
        self._session.links.pop(raw.link.name, None)
        self._session._output_handles.pop(raw.link.handle, None)  # noqa: SLF001
        # pyamqp keeps the remote handle until the service has answered the detach.
        self._links.pop(raw.link.remote_handle, None)

    def raise_if_broken(self) -> None:
        """Raise the error that ended the connection, if it has ended."""
        if self._error is not None:
            raise refused_or_closed(self.where, self._error) from self._error

    def _break(self, error: BaseException) -> None:
        self._error = self._error or error
        for settlement in set(self._unsettled.values()):
            settlement.fail(refused_or_closed(self.where, error))
        for raw in self._links.values():
            raw.wake()
        self._progress.set()

    async def _receive_frame(
        self,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature of the replaced method
        **_: Any,
    ) -> tuple[None, None]:
        """Replace the transport's own reading: there is no frame for the caller, but one may have been read here."""
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
                if self._connection._error is not None:  # noqa: SLF001
                    self._break(self._connection._error)  # noqa: SLF001
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
            if kind == frames.TRANSFER and self._transferred(frames.read_transfer(data, body, end)):
                pass
            elif kind == frames.DISPOSITION and self._unsettled:
                self._settled(frames.read_disposition(data, body, end))
            elif end > body:
                channel = int.from_bytes(data[position + 6 : position + 8])
                await self._hand_to_sdk(channel, data[body:end])
            position = end
        self._connection._last_frame_received_time = time.time()  # noqa: SLF001
        for raw in list(self._links.values()):
            raw.look()
        for settlement in set(self._unsettled.values()):
            settlement.look()
        self._progress.set()
        if self._session.state.name == "UNMAPPED":
            raise ConnectionError("the service ended the AMQP session")
        if self._session.incoming_window <= 0:
            self._session.incoming_window = self._session.target_incoming_window
            await self._session._outgoing_flow()  # noqa: SLF001
        return data[position:]

    async def _hand_to_sdk(self, channel: int, body: bytes) -> None:
        frame = self._decode_frame(memoryview(body))
        await self._connection._process_incoming_frame(channel, frame)  # noqa: SLF001
        error = self._connection._error  # noqa: SLF001
        if error is not None:
            raise error

    def _transferred(self, transfer: frames.Transfer) -> bool:
        raw = self._links.get(transfer.handle)
        if raw is None:
            return False
        session = self._session
        session.next_incoming_id += 1
        session.remote_outgoing_window -= 1
        session.incoming_window -= 1
        raw.transferred(transfer)
        return True

    def _settled(self, disposition: frames.Disposition | None) -> None:
        if disposition is None or not disposition.settled:
            return
        # The peer chooses the range: iterate over it only if it is not longer than the pending ids.
        if disposition.last - disposition.first < len(self._unsettled):
            delivery_ids: Sequence[int] = range(disposition.first, disposition.last + 1)
        else:
            delivery_ids = [one for one in self._unsettled if disposition.first <= one <= disposition.last]
        for delivery_id in delivery_ids:
            settlement = self._unsettled.pop(delivery_id, None)
            if settlement is not None:
                settlement.answered(delivery_id, disposition)
