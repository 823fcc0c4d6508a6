"""What the output for Service Bus does about a client that does not answer; tests/broker has it with one that does."""

import asyncio
from typing import Any

from azure.servicebus import ServiceBusMessageBatch

from shared.azure.senders.service_bus import ServiceBusOutput
from shared.errors import TargetUnavailable
from shared.protocols import Outgoing

MESSAGE = Outgoing(b"x" * 600, None, None, None)


class SilentSender:
    """Opens its link at once, takes *taken* batches, and says nothing more."""

    def __init__(self, taken: int) -> None:
        self.taken = taken
        self.is_closed = False
        self._handler = None

    async def create_message_batch(self) -> Any:
        return ServiceBusMessageBatch(2048)

    async def _send(self, *_: ServiceBusMessageBatch, **__: float) -> None:
        self.taken -= 1
        if self.taken < 0:
            await asyncio.sleep(3600)

    async def close(self) -> None:
        self.is_closed = True
        await asyncio.sleep(3600)


class SilentClient:
    def __init__(self, taken: int) -> None:
        self.senders: list[SilentSender] = []
        self._taken = taken

    def get_queue_sender(self, _: str) -> SilentSender:
        self.senders.append(SilentSender(self._taken))
        return self.senders[-1]


def output_to(client: Any) -> ServiceBusOutput:
    return ServiceBusOutput("west", lambda: client)


def test_each_call_is_answered_in_its_own_time() -> None:
    client = SilentClient(taken=0)
    output = output_to(client)

    async def send() -> Any:
        time = asyncio.get_running_loop().time
        started = time()

        async def one(seconds: float) -> Any:
            (answer,) = await output.send("q", [MESSAGE], timeout_seconds=seconds)
            return type(answer), time() - started

        return await asyncio.gather(one(0.3), one(0.1))

    (first, first_took), (second, second_took) = asyncio.run(send())
    assert first is second is TargetUnavailable
    assert second_took < 0.3, "it waits for its turn no longer than it was given"
    assert first_took < 3


def test_what_was_accepted_before_the_time_was_over_stays_accepted() -> None:
    client = SilentClient(taken=2)
    output = output_to(client)
    answers = asyncio.run(output.send("q", [MESSAGE] * 5, timeout_seconds=0.1))
    assert [type(answer) for answer in answers] == [type(None)] * 2 + [TargetUnavailable] * 3
    assert client.senders[0].is_closed


def test_a_sender_that_failed_is_not_used_again() -> None:
    client = SilentClient(taken=0)
    output = output_to(client)

    async def send_twice() -> None:
        for _ in range(2):
            await output.send("q", [MESSAGE], timeout_seconds=0.01)

    asyncio.run(send_twice())
    assert len(client.senders) == 2
