"""Calls of outputs, as the line makes them: batches one after the other, and a close at the end."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

from shared.ends.event_hubs.clients import event_hub_client
from shared.ends.event_hubs.output import EventHubsOutput
from shared.ends.service_bus.clients import service_bus_client
from shared.ends.service_bus.output import ServiceBusOutput
from shared.errors import BuswayError
from shared.protocols import Outgoing, Output
from tests.messages import delivered

SECONDS = 20.0

type Answers = list[BuswayError | None]


def outgoing(number: object, session_id: str | None = None, *, body: bytes = b"body", **options: Any) -> Outgoing:
    """Return a message as it leaves, with nothing service-assigned."""
    content = delivered(None, message_id=f"m-{number}", session_id=session_id, body=body, **options)
    return Outgoing(content, f"m-{number}", session_id, None)


def service_bus(connection_string: str) -> ServiceBusOutput:
    return ServiceBusOutput("west", lambda: service_bus_client("WEST", {"WEST": connection_string}))


def event_hubs(connection_string: str) -> EventHubsOutput:
    return EventHubsOutput("west", lambda hub: event_hub_client("WEST", {"WEST": connection_string}, hub))


class Closable(Protocol):
    async def close(self) -> None: ...


@asynccontextmanager
async def closing[T: Closable](opened: T) -> AsyncIterator[T]:
    try:
        yield opened
    finally:
        await opened.close()


async def sent(output: Output, entity: str, *batches: Sequence[Outgoing], seconds: float = SECONDS) -> list[Answers]:
    """Return the answers to each batch."""
    async with closing(output):
        return [await output.send(entity, batch, timeout_seconds=seconds) for batch in batches]


def answers_of(
    opened: Callable[[], Output], entity: str, *batches: Sequence[Outgoing], seconds: float = SECONDS
) -> list[Answers]:
    """Return the answers of an output to each batch."""

    async def run() -> list[Answers]:
        return await sent(opened(), entity, *batches, seconds=seconds)

    return asyncio.run(run())


def to_bus(
    connection_string: str, entity: str, *batches: Sequence[Outgoing], seconds: float = SECONDS
) -> list[Answers]:
    """Return the answers of a namespace of Service Bus to each batch."""
    return answers_of(lambda: service_bus(connection_string), entity, *batches, seconds=seconds)


def to_hub(connection_string: str, hub: str, *batches: Sequence[Outgoing], seconds: float = SECONDS) -> list[Answers]:
    """Return the answers of a hub to each batch."""
    return answers_of(lambda: event_hubs(connection_string), hub, *batches, seconds=seconds)


def kinds(answers: Answers) -> list[str]:
    return [type(answer).__name__ for answer in answers]
