"""Reading of what an entity has, without taking or locking anything."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping

from shared.ends.service_bus.clients import service_bus_client
from shared.ends.service_bus.peek import MESSAGES_AT_ONCE, CannotBePeeked, Peeker, peeker
from shared.errors import TargetUnavailable
from shared.message.peeked import PeekedMessage
from shared.resend.letters import Letter
from shared.resend.places import Place

CHECK = "check its name, the network, and that the connection may listen to it"
"""What an SDK error about an entity that cannot be opened does not distinguish."""


async def peek(
    place: Place, settings: Mapping[str, str], first: int = 1, *, most: int | None = None
) -> AsyncGenerator[tuple[Letter, PeekedMessage]]:
    """
    Yield the messages of *place* from sequence number *first* on, *most* in all; it reads some hundred at a time.

    Raises ConfigError for an invalid app setting, TargetUnavailable if the entity cannot be read.
    """
    async with opened_peeker(place, settings) as opened:
        last, seen = first - 1, 0
        while messages := await _page(opened, last + 1, MESSAGES_AT_ONCE if most is None else most - seen):
            for message in messages:
                yield Letter.at(place, message.content), message
            seen += len(messages)
            highest = max(
                (message.sequence_number for message in messages if message.sequence_number is not None), default=last
            )
            if highest <= last or seen == most:
                return
            last = highest


async def peek_on(opened: Peeker, place: Place, seen: dict[int, int]) -> AsyncGenerator[Letter]:
    """Yield the messages of *place* that are new since *seen*, the highest number by partition; raises as `peek`."""
    first = seen.get(0, 0) + 1
    while messages := await _page(opened, first, MESSAGES_AT_ONCE):
        last = first - 1
        for message in messages:
            last = message.sequence_number or last
            if last > seen.get(partition_of(last), 0):
                seen[partition_of(last)] = last
                yield Letter.at(place, message.content)
        if last < first:
            return
        # The first message of a partition leads to those that are new in it.
        first = seen[partition_of(last)] + 1


@contextlib.asynccontextmanager
async def opened_peeker(place: Place, settings: Mapping[str, str]) -> AsyncIterator[Peeker]:
    """Open a connection on which *place* can be peeked; raises as `peek`."""
    async with service_bus_client(place.setting, settings) as client, peeker(client, place.origin) as opened:
        yield opened


async def keys_in(place: Place, settings: Mapping[str, str]) -> set[str]:
    """Return the keys of all messages of an entity; raises as `peek`."""
    async with contextlib.aclosing(peek(place, settings)) as found:
        return {letter.key async for letter, _ in found if letter.key is not None}


async def _page(opened: Peeker, first: int, count: int) -> list[PeekedMessage]:
    try:
        return await opened.peek(first, min(count, MESSAGES_AT_ONCE))
    except TargetUnavailable as error:
        kind = CannotBePeeked if isinstance(error, CannotBePeeked) else TargetUnavailable
        raise kind(f"{error}; {CHECK}") from error


_PARTITION_BITS = 48


def partition_of(number: int) -> int:
    """Return the partition that a sequence number names, 0 also in an entity without partitions."""
    return number >> _PARTITION_BITS


def by_partition[T](items: Iterable[T], number_of: Callable[[T], int]) -> list[list[T]]:
    """Return *items* by the partitions of their sequence numbers."""
    found: dict[int, list[T]] = {}
    for item in items:
        found.setdefault(partition_of(number_of(item)), []).append(item)
    return [*found.values()]
