"""
Sends encoded messages to the queues and topics of an AMQP 1.0 broker, each with the bytes that it has.

Messages of one session or partition key wait for each other's answers, because a broker may release one and accept the
next. All others leave without waiting, so that their rate does not depend on the distance.
"""

from asyncio import get_running_loop
from collections.abc import Mapping, Sequence

from shared.ends.amqp.address import Address
from shared.ends.amqp.endpoint import AmqpEndpoint
from shared.ends.amqp.trial import QUIET_SECONDS
from shared.errors import BuswayError
from shared.protocols import Outgoing


class AmqpOutput:
    """Sends to the addresses of one broker, over connections for each, opened when they are needed and kept."""

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
        self._addresses: dict[str, Address] = {}

    async def send(
        self, entity: str, messages: Sequence[Outgoing], *, timeout_seconds: float
    ) -> list[BuswayError | None]:
        """Send *messages* to a queue, topic or address, beside other calls; see `shared.protocols.Output`."""
        deadline = get_running_loop().time() + timeout_seconds
        address = self._addresses.get(entity)
        if address is None:
            name, capability = f"{self._site}/{entity}", self._capabilities.get(entity)
            address = Address(name, self._endpoint, entity, capability, self._quiet_seconds)
            self._addresses[entity] = address
        return await address.send(messages, deadline)

    async def close(self) -> None:
        """Close all connections."""
        addresses, self._addresses = self._addresses, {}
        for address in addresses.values():
            await address.close()
