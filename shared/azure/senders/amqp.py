"""
Sends encoded messages to the queues and topics of an AMQP 1.0 broker, each with the bytes that it has.

Messages of one session or partition key wait for each other's answers, because a broker may release one and accept the
next. All others leave without waiting, so that their rate does not depend on the distance.
"""

import asyncio
from collections.abc import Mapping, Sequence

from shared.azure.senders.amqp_call import Call
from shared.azure.senders.amqp_endpoint import AmqpEndpoint
from shared.azure.senders.amqp_place import Place
from shared.azure.senders.amqp_trial import QUIET_SECONDS, Blame
from shared.errors import BuswayError, TargetUnavailable
from shared.protocols import Outgoing


class AmqpOutput:
    """Sends to the addresses of one broker, over a connection for each, opened at the first send and kept."""

    def __init__(
        self,
        site: str,
        endpoint: AmqpEndpoint,
        capabilities: Mapping[str, str],
        *,
        quiet_seconds: float = QUIET_SECONDS,
    ) -> None:
        """
        Use *site* as the broker's name in errors; *capabilities* has `queue` or `topic` by the entity's name.

        A message is at fault for a closed link only if another link is still open after *quiet_seconds*.
        """
        self._site = site
        self._endpoint = endpoint
        self._quiet_seconds = quiet_seconds
        self._capabilities = capabilities
        self._places: dict[str, Place] = {}

    async def send(
        self, entity: str, messages: Sequence[Outgoing], *, timeout_seconds: float
    ) -> list[BuswayError | None]:
        """Send *messages* to a queue, topic or address, beside other calls; see `shared.protocols.Output`."""
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        place = self._places.get(entity)
        if place is None:
            name, capability = f"{self._site}/{entity}", self._capabilities.get(entity)
            blame = Blame(self._quiet_seconds)
            place = self._places[entity] = Place(name, self._endpoint, entity, capability, blame)
        if not place.suspects:
            return await Call(place, messages, deadline).run()
        try:
            async with asyncio.timeout_at(deadline):
                await place.alone.acquire()
        except TimeoutError:
            return [TargetUnavailable(f"{place.name}: other messages are sent one by one")] * len(messages)
        try:
            return await Call(place, messages, deadline).run()
        finally:
            place.alone.release()

    async def close(self) -> None:
        """Close all connections."""
        places, self._places = self._places, {}
        for place in places.values():
            await place.close()
