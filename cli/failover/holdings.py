"""What a site holds that was published there, and that nothing has carried to the primary site."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from azure.servicebus.aio import ServiceBusClient

from shared.amqp.values import Malformed
from shared.journal.peek import peeked
from shared.message import Message, Origin
from shared.metadata import iso_time, visited_sites


@dataclass(frozen=True)
class Holding:
    """
    What one entity holds.

    Shape:  all of its messages, locked, scheduled and deferred ones among them, and how many of them are local: those
            whose repl-path does not name the primary site.
    Units:  oldest and newest are the ISO 8601 times when local ones were enqueued, None where there are none.
    """

    entity: str
    messages: int
    local: int
    oldest: str | None = None
    newest: str | None = None


async def holdings(
    site: str, entities: Sequence[str], primary: str, open_client: Callable[[], ServiceBusClient]
) -> list[Holding]:
    """Look at *entities* of *site* without taking anything; raises TargetUnavailable if that cannot be done."""
    async with open_client() as client:
        return [await _holding(client, Origin(site, entity), primary) for entity in entities]


async def _holding(client: ServiceBusClient, place: Origin, primary: str) -> Holding:
    # The SDK leaves the function without types.
    connection: Any = client._create_session_browser(place.entity)  # type: ignore[no-untyped-call]  # noqa: SLF001 - peeked
    last, found = 0, 0
    local: list[int | None] = []
    try:
        while contents := await peeked(connection, place, last + 1):
            numbers = [0]
            for content in contents:
                found += 1
                number, enqueued, is_local = _read(content, place, primary)
                numbers.append(number)
                if is_local:
                    local.append(enqueued)
            if max(numbers) <= last:
                break
            last = max(numbers)
    finally:
        await connection.close()
    times = [iso_time(time) for time in local if time is not None]
    return Holding(place.entity, found, len(local), min(times, default=None), max(times, default=None))


def _read(content: bytes, place: Origin, primary: str) -> tuple[int, int | None, bool]:
    """Return sequence number, time of arrival and whether a message is local, which one is that cannot be read."""
    try:
        message = Message.received(content, place)
        is_local = primary not in visited_sites(message)
    except Malformed:
        return 0, None, True
    return message.arrival.sequence_number or 0, message.arrival.enqueued_time, is_local
