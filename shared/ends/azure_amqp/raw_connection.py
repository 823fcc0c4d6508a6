"""
Connections to Service Bus and Event Hubs that pass on the bytes of messages, with Busway's own AMQP.

The receivers of Microsoft's SDKs decode every message and keep no copy of its bytes; encoding it again loses types. So
the SDKs only provide the tokens here. Each link has an AMQP session of its own, as in .NET, and a token is put before
it is attached.
"""

import asyncio
import ssl
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from shared.amqp.client import ClientSession, Opening
from shared.amqp.errors import UNAUTHORIZED_ACCESS
from shared.amqp.peer_error import PeerError
from shared.amqp.performatives import OUTCOME_STATES, Attach
from shared.amqp.requests import Answer, Requests
from shared.amqp.socket import Socket
from shared.amqp.values import Value, described, list_, map_, string, symbol, timestamp, ulong
from shared.ends.azure_amqp.raw_link import Delivery, LinkClosed, RawLink, refused_or_closed
from shared.ends.azure_amqp.settlement import Settlement

_OPEN_SECONDS = 30.0
_SETTLEMENT_SECONDS = 60.0
_TOKEN_SECONDS = 60.0
# A token is put again when a tenth of its time is left, as in the SDKs.
_RENEW_AFTER = 0.9
_SHORTEST_RENEWAL = 1.0
# .NET's values, measured.
_CHANNEL_MAX = 8_191
_BEGIN = {"incoming_window": 2**32 - 1, "outgoing_window": 5_000, "handle_max": 2**32 - 1}
_PORTS = {True: 5671, False: 5672}
_SOURCE, _TARGET = 0x28, 0x29
_FILTER = 7
_OK = range(200, 300)
_CONDITIONS = {404: "amqp:not-found", 500: "amqp:internal-error", 503: "com.microsoft:server-busy"}
_SAS = b"servicebus.windows.net:sastoken"


class Peer(NamedTuple):
    """The service: its host, with a port for an emulator, and the credential of an SDK's client with its scope."""

    host_name: str
    tls: ssl.SSLContext | None
    credential: Any
    scope: str


class RawConnection:
    """An open connection to one entity; `open` makes it."""

    def __init__(self, where: str, peer: Peer, path: str) -> None:
        """Connect to the entity at *path* of *peer*; *where* names it in errors and logs."""
        self.where = where
        self.name = f"busway-{uuid.uuid4()}"
        self._peer = peer
        self._path = path
        self._socket: Socket
        self._tokens: Requests | None = None
        self._nodes: dict[str, Requests] = {}
        self._sessions: dict[RawLink, ClientSession] = {}
        self._authorizing = asyncio.Lock()
        self._has_fresh_token = True  # put when the connection was opened
        self._renewal: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, where: str, peer: Peer, path: str) -> "RawConnection":
        """
        Return an open connection on which a token was put.

        Raises: TargetUnavailable and TargetRefused.
        """
        self = cls(where, peer, path)
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                await self._open()
        except Exception as error:  # errors of the credential, the service or the socket
            await self.close()
            raise refused_or_closed(where, error) from error
        except BaseException:
            await self.close()
            raise
        return self

    async def _open(self) -> None:
        host, _, port = self._peer.host_name.partition(":")
        tls = self._peer.tls
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def begin(_socket: Socket) -> None:
            opened.set_result(None)

        def end(failure: Exception) -> None:
            if not opened.done():
                opened.set_exception(failure)
                opened.exception()  # it may have no reader

        opening = Opening(self.name, host, "MSSBCBS", sasl_host_name=host, channel_max=_CHANNEL_MAX, awaits_answer=True)
        number = int(port or _PORTS[tls is not None])
        self._socket = await Socket.connect(host, number, tls, opening, opened=begin, ended=end)
        await opened
        expires = await self._put_token()
        self._renewal = asyncio.create_task(self._renew(expires))

    @property
    def is_broken(self) -> bool:
        """Return whether the connection has ended."""
        return self._socket.client.failure is not None

    def raise_if_broken(self) -> None:
        """Raise the error that ended the connection, if it has ended."""
        failure = self._socket.client.failure
        if failure is not None:
            raise refused_or_closed(self.where, failure) from failure

    async def attach(
        self,
        path: str,
        properties: Mapping[str, Value],
        prefetch: int = 0,
        *,
        filters: Mapping[str, Value] | None = None,
        capabilities: tuple[str, ...] = (),
        drains: bool = False,
        is_settled: bool = False,
    ) -> RawLink:
        """
        Return a new link to *path* after the service has accepted it; *is_settled* for one that settles what it sends.

        Raises: TargetRefused and LinkClosed, if the service refuses it.
        """
        await self._authorize()
        session = self._socket.client.begin(**_BEGIN)
        name = str(uuid.uuid4())
        fields = [string(f"amqps://{self._peer.host_name}/{path}")]
        if filters is not None:
            nulls = [Value(0x40, None)] * (_FILTER - 1)
            fields += [*nulls, map_((symbol(key), value) for key, value in filters.items())]
        attach = Attach(
            name,
            0,
            role=True,
            send_settle_mode=0,
            receive_settle_mode=0 if is_settled else 1,
            source=described(ulong(_SOURCE), list_(fields)),
            target=described(ulong(_TARGET), list_([string(name)])),
            initial_delivery_count=None,
            max_message_size=None,
            desired_capabilities=capabilities,
            properties=map_((symbol(key), value) for key, value in properties.items()),
        )
        link = RawLink(self, session, attach, prefetch, drains=drains, is_settled=is_settled)
        self._sessions[link] = session
        session.attach(link)
        try:
            link.start()
            await link.attached()
        except BaseException:
            await self.detach(link)
            raise
        return link

    async def detach(self, link: RawLink) -> None:
        """Close a link and end its session."""
        session = self._sessions.pop(link, None)
        failure = LinkClosed(f"{self.where}: the link is closed", "closed by this side")
        for settlement in set(link.unsettled.values()):
            settlement.fail(failure)
        if session is not None and not self.is_broken:
            link.detach()
            session.close()
            self._socket.flush()

    async def request(self, node: str, properties: Mapping[str, Value], content: Value, seconds: float) -> Answer:
        """Send a request to a node and return its answer; raises AmqpError, OSError, and TimeoutError."""
        requests = self._nodes.get(node)
        if requests is None or requests.failure is not None:
            await self._authorize()
            name = f"{self.name}:{uuid.uuid4()}"
            requests = self._nodes[node] = Requests(self._socket.client.begin(**_BEGIN), node, name)
        return await self._ask(requests, properties, content, seconds)

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
        delivery_ids = [delivery.delivery_id for delivery in deliveries]
        link.settle(delivery_ids, state or OUTCOME_STATES[outcome], settled=False)
        try:
            await asyncio.wait_for(settlement.done, _SETTLEMENT_SECONDS)
        except TimeoutError:
            return settlement.failures | dict.fromkeys(settlement.waiting, "no answer")
        finally:
            for delivery_id in settlement.waiting:
                link.unsettled.pop(delivery_id, None)
        link.restore(len(deliveries))
        return settlement.failures

    async def release(self, link: RawLink, deliveries: Sequence[Delivery]) -> None:
        """Release deliveries without counting them as delivered."""
        if not self.is_broken:
            link.release(deliveries)
            self._socket.flush()

    async def close(self) -> None:
        """Close the connection; unsettled messages return to the service."""
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.wait([self._renewal])
        if hasattr(self, "_socket"):
            await self._socket.close()

    async def _authorize(self) -> None:
        """Put a token, unless the one of the opened connection was not used yet."""
        self.raise_if_broken()
        if self._has_fresh_token:
            self._has_fresh_token = False
            return
        try:
            async with self._authorizing:
                await self._put_token()
        except Exception as error:  # errors of the credential, the service or the socket
            raise refused_or_closed(self.where, error) from error

    async def _put_token(self) -> float:
        """Put a token, and return when it expires."""
        audience = f"sb://{self._peer.host_name}/{self._path}"
        credential = self._peer.credential
        kind = getattr(credential, "token_type", b"jwt")
        token = await credential.get_token(audience if kind == _SAS else self._peer.scope)
        properties = {
            "operation": string("put-token"),
            "name": string(audience),
            "type": string(kind.decode() if isinstance(kind, bytes) else kind),
            "expiration": timestamp(int(token.expires_on) * 1000),
        }
        text = token.token.decode() if isinstance(token.token, bytes) else token.token
        if self._tokens is None or self._tokens.failure is not None:
            name = f"{self.name}:{uuid.uuid4()}"
            self._tokens = Requests(self._socket.client.begin(**_BEGIN), "$cbs", name)
        answer = await self._ask(self._tokens, properties, string(text), _TOKEN_SECONDS)
        if answer.status not in _OK:
            condition = answer.condition or _CONDITIONS.get(answer.status, UNAUTHORIZED_ACCESS)
            raise PeerError(condition, answer.description)
        return float(token.expires_on)

    async def _renew(self, expires: float) -> None:
        """Put a token again before it expires."""
        try:
            while True:
                await asyncio.sleep(max((expires - time.time()) * _RENEW_AFTER, _SHORTEST_RENEWAL))
                async with self._authorizing:
                    expires = await self._put_token()
        except Exception as error:  # noqa: BLE001 - whatever it is, the connection is of no use without a token
            self._socket.client.end(error)

    @staticmethod
    async def _ask(requests: Requests, properties: Mapping[str, Value], content: Value, seconds: float) -> Answer:
        found: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def answered(answer: Answer | Exception) -> None:
            if found.done():
                return
            if isinstance(answer, Exception):
                found.set_exception(answer)
            else:
                found.set_result(answer)

        identity = requests.ask(properties, content, answered)
        try:
            async with asyncio.timeout(seconds):
                return await found
        finally:
            requests.forget(identity)
