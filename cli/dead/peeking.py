"""Reading of what an entity has, without taking or locking anything."""

from collections.abc import AsyncGenerator, Mapping

from cli.dead.letters import Letter
from cli.dead.places import Place
from shared.azure.connections import service_bus_client
from shared.azure.peek import Peeker, peeker
from shared.errors import TargetUnavailable
from shared.message.peeked import PeekedMessage

CHECK = "check its name, the network, and that the connection may listen to it"
"""What an SDK error about an entity that cannot be opened does not distinguish."""


async def peeked(
    place: Place, settings: Mapping[str, str], first: int = 1
) -> AsyncGenerator[list[tuple[Letter, PeekedMessage]]]:
    """
    Yield the messages of *place* from sequence number *first* on, some hundred at a time.

    Raises ConfigError for an invalid app setting, TargetUnavailable if the entity cannot be read.
    """
    async with service_bus_client(place.setting, settings) as client, peeker(client, place.origin) as opened:
        last = first - 1
        while messages := await _page(opened, last + 1):
            yield [(Letter(each.content, place.origin), each) for each in messages]
            highest = max((each.sequence_number for each in messages if each.sequence_number is not None), default=last)
            if highest <= last:
                return
            last = highest


async def _page(opened: Peeker, first: int) -> list[PeekedMessage]:
    try:
        return await opened.peek(first)
    except TargetUnavailable as error:
        raise TargetUnavailable(f"{error}; {CHECK}") from error
