"""Reads the bytes of messages from a queue of an AMQP 1.0 broker, which no library passes on undecoded."""

import asyncio
import uuid

from shared.amqp.client import Opening
from shared.amqp.links import Receiver
from shared.amqp.performatives import ACCEPTED_STATE, Attach
from shared.amqp.socket import Socket
from shared.amqp.values import NULL, array, described, list_, string, symbol, uint, ulong
from shared.ends.amqp.endpoint import amqp_endpoint

_CREDIT = 1_000
_SECONDS = 20.0


class Reader(Receiver):
    """Accepts all messages, up to *most*."""

    def __init__(self, *given: object, most: int | None) -> None:
        super().__init__(*given)  # type: ignore[arg-type] # those of a link
        self.most = most
        self.found: list[bytes] = []
        self.news = asyncio.Event()

    def on_attach(self, peer: Attach) -> None:
        super().on_attach(peer)
        self.grant(_CREDIT)
        self.news.set()

    def on_delivery(self, delivery_id: int, _tag: bytes, message: bytes, *, settled: bool) -> None:
        if len(self.found) != self.most:
            assert not settled
            self.settle([delivery_id], ACCEPTED_STATE, settled=True)
            self.found.append(message)
        if self.credit < _CREDIT // 2:
            self.grant(_CREDIT)
        self.news.set()

    def on_end(self, _failure: Exception) -> None:
        self.news.set()


async def read_all(
    url: str, address: str, *, quiet: float = 1.0, capability: str | None = None, most: int | None = None
) -> list[bytes]:
    """Return and remove the messages of a queue, until none has come for *quiet* seconds or there are *most*."""
    endpoint = amqp_endpoint(url)
    name = f"reading-{uuid.uuid4()}"
    opening = Opening(name, endpoint.host_name, endpoint.mechanism, endpoint.initial_response(), endpoint.host)
    attached: asyncio.Future[Reader] = asyncio.get_running_loop().create_future()

    def attach(socket: Socket) -> None:
        session = socket.client.begin(incoming_window=2**31 - 1, outgoing_window=2**31 - 1, handle_max=0)
        reader = Reader(session, _attach(name, address, capability), most=most)
        session.attach(reader)
        attached.set_result(reader)

    socket = await Socket.connect(
        endpoint.host, endpoint.port, None, opening, opened=attach, ended=lambda _failure: None
    )
    async with asyncio.timeout(_SECONDS):
        reader = await attached
        await reader.news.wait()
    try:
        while len(reader.found) != most:
            assert reader.failure is None, reader.failure
            reader.news.clear()
            async with asyncio.timeout(quiet):
                await reader.news.wait()
    except TimeoutError:
        pass
    finally:
        # The broker answers after it has noted what was accepted.
        reader.detach()
        async with asyncio.timeout(_SECONDS):
            while reader.failure is None:
                reader.news.clear()
                await reader.news.wait()
        await socket.close()
    return reader.found


def _attach(name: str, address: str, capability: str | None) -> Attach:
    outcomes = array(0xA3, [symbol("amqp:accepted:list")])
    capabilities = NULL if capability is None else array(0xA3, [symbol(capability)])
    source = described(ulong(0x28), list_([string(address), uint(1), *[NULL] * 7, outcomes, capabilities]))
    return Attach(name, 0, True, 0, 0, source, described(ulong(0x29), list_([string("reading")])), None, None, (), None)
