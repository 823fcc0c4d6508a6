"""Senders and receivers that follow, with asyncio."""

import asyncio
import socket
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusError

from busway_broker.thread import RunningBroker
from busway_clients.aio.endpoints.receiver import FollowingReceiver as AsyncReceiver
from busway_clients.aio.endpoints.sender import FollowingSender as AsyncSender
from busway_clients.aio.endpoints.watch import EndpointWatch as AsyncWatch
from tests.clients.applications import connection_string
from tests.clients.endpoints.following import Register, endpoint, held

pytest_plugins = "broker.tests.broker_of_a_module"

# The SDK leaves sockets of connections that broke, or links that were refused, to the garbage collector.


def test_asyncio_behaves_the_same(register: Register, broker: RunningBroker) -> None:
    async def main() -> None:
        def connect(to: Any) -> Any:
            return register.connect(to, AsyncClient)

        watch = register.watch(AsyncWatch)
        sender = AsyncSender(watch, connect, lambda client: client.get_queue_sender("orders"))
        receiver = AsyncReceiver(watch, connect, lambda client: client.get_queue_receiver("orders"), drain_seconds=20)
        async with sender, receiver:
            await asyncio.gather(*(sender.send_messages(ServiceBusMessage(str(n))) for n in range(5)))
            first, second = await receiver.receive_messages(2, max_wait_time=5)
            register.point_to(endpoint("east"))
            batch = await sender.create_message_batch()
            while sender.endpoint != endpoint("east"):  # on a busy machine it takes more than a second to open a link
                batch = await sender.create_message_batch()
            batch.add_message(ServiceBusMessage("5"))
            await sender.send_messages(batch)
            assert await receiver.receive_messages(2, max_wait_time=0.05) == []
            taking = asyncio.create_task(receiver.receive_messages(2, max_wait_time=5))
            await receiver.complete_message(first)
            await receiver.dead_letter_message(second, "why", "because")
            (other,) = await taking
            assert str(other) == "5"
            broker.faults("east").go_down()
            with pytest.raises((ServiceBusError, OSError, ValueError)):
                await receiver.complete_message(other)
            register.point_to(endpoint("west"))
            await sender.send_messages(ServiceBusMessage("6"))
            (third,) = await receiver.receive_messages(1, max_wait_time=20)
            await receiver.complete_message(third)
            with pytest.raises(MessageLockLostError):
                await receiver.complete_message(other)
        broker.faults("east").come_up()

    asyncio.run(main())
    broker.faults("east").expire_locks("orders")
    assert held(broker) == [3, 1]
    assert broker.counts("west")["orders"].dead_lettered == 1


def test_asyncio_is_not_blocked_by_a_silent_peer(
    register: Register, broker: RunningBroker, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(place: str) -> Any:
        def connect(to: Any) -> Any:
            if to == endpoint("west"):
                return register.connect(to, AsyncClient)
            return AsyncClient.from_connection_string(place, retry_total=0)

        watch = register.watch(AsyncWatch)
        async with AsyncSender(
            watch, connect, lambda client: client.get_queue_sender("orders"), open_seconds=1.5
        ) as sender:
            await sender.send_messages(ServiceBusMessage("a"))
            register.point_to(endpoint("silent"))
            sent = 1
            while f"{endpoint('silent')} cannot be opened: TimeoutError" not in caplog.text:
                await sender.send_messages(ServiceBusMessage("b"))
                sent += 1
            return sent

    with socket.create_server(("127.0.0.1", 0)) as silent:
        sent = asyncio.run(main(connection_string(silent)))
    assert sent > 3
    assert held(broker) == [sent, 0]
