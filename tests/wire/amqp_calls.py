"""Calls of the output for AMQP 1.0 brokers."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from shared.ends.amqp.endpoint import amqp_endpoint
from shared.ends.amqp.output import AmqpOutput
from shared.protocols import Outgoing
from tests.wire import sending
from tests.wire.answering_broker import AnsweringBroker
from tests.wire.sending import Answers, closing, outgoing

SECONDS = 5.0


def some(count: int, session_id: str | None = None) -> list[Outgoing]:
    return [outgoing(number, session_id) for number in range(count)]


@asynccontextmanager
async def output_to(broker: AnsweringBroker, **options: Any) -> AsyncIterator[AmqpOutput]:
    """Run a broker and yield an output to it."""
    async with broker.running() as url, closing(AmqpOutput("there", amqp_endpoint(url), {}, **options)) as output:
        yield output


async def sent(
    url: str, *calls: Sequence[Outgoing], entity: str = "q", seconds: float = SECONDS, **capabilities: str
) -> list[Answers]:
    return await sending.sent(AmqpOutput("there", amqp_endpoint(url), capabilities), entity, *calls, seconds=seconds)


def answers_of(
    broker: AnsweringBroker, *calls: Sequence[Outgoing], seconds: float = SECONDS, **capabilities: str
) -> list[Answers]:
    async def run() -> list[Answers]:
        async with broker.running() as url:
            return await sent(url, *calls, seconds=seconds, **capabilities)

    return asyncio.run(run())
