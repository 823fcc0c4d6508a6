"""The output for Service Bus, when the target stops reading in the middle of a message."""

import asyncio

import pytest

from broker.tests import broker_of_a_module
from busway_broker.config import NamespaceConfig, QueueConfig
from busway_broker.thread import RunningBroker
from shared.ends.service_bus.output import ServiceBusOutput
from shared.errors import TargetUnavailable
from shared.protocols import Outgoing
from tests.messages import delivered
from tests.wire.sending import closing, service_bus

broker = broker_of_a_module.broker
broker_clock = broker_of_a_module.broker_clock
running_broker = broker_of_a_module.running_broker

LARGEST_BYTES = 64 << 20
# More than the buffers of both sockets take.
LARGE_BYTES = 32 << 20

# The SDK forgets to close the socket of a connection that broke.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(scope="module")
def broker_namespaces() -> list[NamespaceConfig]:
    return [NamespaceConfig(name="west", queues=(QueueConfig(name="q", max_message_size=LARGEST_BYTES),))]


class Relay:
    """A TCP relay to *port*; while it is stalled, it reads nothing more from the connections that it has."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reading = asyncio.Event()
        self._reading.set()
        self._stalled: list[asyncio.Event] = []

    def stall(self) -> None:
        """Stop to read from the connections of now; later ones are relayed."""
        self._reading.clear()
        self._stalled.append(self._reading)
        self._reading = asyncio.Event()
        self._reading.set()

    def resume(self) -> None:
        """Read again from all connections."""
        for each in self._stalled:
            each.set()

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._port)
        reading = self._reading
        await asyncio.gather(self._copy(reader, to_writer, reading), self._copy(to_reader, writer, None))

    @staticmethod
    async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, reading: asyncio.Event | None) -> None:
        try:
            while data := await reader.read(1 << 16):
                if reading is not None:
                    await reading.wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass  # a side has closed its connection; the other is closed below
        finally:
            writer.close()


def message(name: str, size: int = 4) -> Outgoing:
    return Outgoing(delivered(None, message_id=name, body=bytes(size)), name, None, None)


async def stall(output: ServiceBusOutput, relay: Relay) -> None:
    assert await output.send("q", [message("first")], timeout_seconds=20) == [None]
    relay.stall()
    loop = asyncio.get_running_loop()
    started = loop.time()
    answers = await asyncio.gather(
        *(output.send("q", [message(f"large-{n}", LARGE_BYTES)], timeout_seconds=1.5) for n in range(3)),
        output.send("q", [message("small")], timeout_seconds=1.0),
    )
    assert [type(answer) for (answer,) in answers] == [TargetUnavailable] * 4
    assert loop.time() - started < 8
    # A new link is opened, and the old one is closed although it could not write to its end.
    assert await output.send("q", [message("next")], timeout_seconds=20) == [None]
    pumps = [task for task in asyncio.all_tasks() if "SenderLink" in repr(task.get_coro())]
    if pumps:
        await asyncio.wait(pumps, timeout=5)
    assert all(pump.done() for pump in pumps)


def test_a_target_that_stops_reading_is_given_up_at_the_deadline_and_nothing_is_left_running(
    broker: RunningBroker,
) -> None:
    async def use() -> None:
        relay = Relay(broker.port("west"))
        async with await asyncio.start_server(relay.connect, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            text = broker.connection_string("west").replace(f":{broker.port('west')}", f":{port}", 1)
            try:
                async with closing(service_bus(text)) as output:
                    await stall(output, relay)
            finally:
                relay.resume()

    asyncio.run(use())
    assert broker.counts("west")["q"].active == 2
