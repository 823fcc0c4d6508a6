"""Calls of the output for AMQP 1.0 brokers."""

import asyncio
from collections.abc import Sequence

from shared.ends.amqp.endpoint import amqp_endpoint
from shared.ends.amqp.output import AmqpOutput
from shared.errors import BuswayError
from shared.protocols import Outgoing
from tests.messages import delivered
from tests.wire.answering_broker import (
    AnsweringBroker,
)

SECONDS = 5.0


def outgoing(number: int, *, session_id: str | None = None, body: bytes = b"body") -> Outgoing:
    content = delivered(None, message_id=f"m-{number}", session_id=session_id, body=body)
    return Outgoing(content, f"m-{number}", session_id, None)


def some(count: int, **options: str) -> list[Outgoing]:
    return [outgoing(number, **options) for number in range(count)]  # type: ignore[arg-type] # session_id only


async def sent(
    url: str, *calls: Sequence[Outgoing], entity: str = "q", seconds: float = SECONDS, **capabilities: str
) -> list[list[BuswayError | None]]:
    output = AmqpOutput("there", amqp_endpoint(url), capabilities)
    try:
        return [await output.send(entity, messages, timeout_seconds=seconds) for messages in calls]
    finally:
        await output.close()


def answers_of(
    broker: AnsweringBroker, *calls: Sequence[Outgoing], seconds: float = SECONDS, **capabilities: str
) -> list[list[BuswayError | None]]:
    async def run() -> list[list[BuswayError | None]]:
        async with broker.running() as url:
            return await sent(url, *calls, seconds=seconds, **capabilities)

    return asyncio.run(run())


def kinds(answers: Sequence[BuswayError | None]) -> list[str]:
    return [type(answer).__name__ for answer in answers]
