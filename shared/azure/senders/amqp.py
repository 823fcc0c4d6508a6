"""
Sends encoded messages to the queues and topics of an AMQP 1.0 broker, each with the bytes that it has.

Messages of one session or partition key wait for each other's answers, because a broker may release one and accept the
next. All others leave without waiting, so that their rate does not depend on the distance.
"""

import asyncio
import ssl
from collections.abc import Mapping, Sequence

from shared.amqp.values import Malformed
from shared.azure.senders.amqp_endpoint import AmqpEndpoint
from shared.azure.senders.amqp_frames import AmqpError
from shared.azure.senders.amqp_link import AmqpLink, NoCredit
from shared.azure.senders.conditions import (
    SIZE_EXCEEDED,
    UNREACHABLE,
    about_the_link,
    as_error,
    reaction_to,
)
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.printable import printable
from shared.protocols import Outgoing

_MOST_IN_FLIGHT = 256
_LONGEST_TEXT = 200


class AmqpOutput:
    """Sends to the addresses of one broker, over a connection for each, opened at the first send and kept."""

    def __init__(self, site: str, endpoint: AmqpEndpoint, capabilities: Mapping[str, str]) -> None:
        """Use *site* as the broker's name in errors; *capabilities* has `queue` or `topic` by the entity's name."""
        self._site = site
        self._endpoint = endpoint
        self._capabilities = capabilities
        self._places: dict[str, _Place] = {}

    async def send(
        self, entity: str, messages: Sequence[Outgoing], *, timeout_seconds: float
    ) -> list[BuswayError | None]:
        """Send *messages* to a queue, topic or address, beside other calls; see `shared.protocols.Output`."""
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        place = self._places.get(entity)
        if place is None:
            name, capability = f"{self._site}/{entity}", self._capabilities.get(entity)
            place = self._places[entity] = _Place(name, self._endpoint, entity, capability)
        try:
            await place.opened(deadline)
        except (AmqpError, OSError, Malformed) as error:
            return [about_the_link(translated(place.name, error), place.name)] * len(messages)
        return await _Call(place, messages, deadline).run()

    async def close(self) -> None:
        """Close all connections."""
        places, self._places = self._places, {}
        for place in places.values():
            await place.close()


class _Place:
    """An address, and the link to it, which is opened when it is needed."""

    def __init__(self, name: str, endpoint: AmqpEndpoint, address: str, capability: str | None) -> None:
        self.name = name
        self.suspects = 0
        """Messages that were in flight when the broker closed the link because of one; they are sent one by one."""
        self._endpoint = endpoint
        self._address = address
        self._capability = capability
        self._link: AmqpLink | None = None
        self._opening = asyncio.Lock()

    async def opened(self, deadline: float) -> AmqpLink:
        """Return the open link; raises as `AmqpLink.open`, and TimeoutError at *deadline*."""
        async with asyncio.timeout_at(deadline), self._opening:
            if self._link is None or self._link.failure is not None:
                self._link = await AmqpLink.open(self._endpoint, self._address, self._capability)
            return self._link

    async def deliver(self, message: Outgoing, deadline: float) -> BuswayError | None:
        """Send one message; return None if it was accepted, or the error."""
        try:
            link = await self.opened(deadline)
        except (AmqpError, OSError, Malformed) as error:
            return about_the_link(translated(self.name, error), self.name)
        size = len(message.content)
        if 0 < link.largest_message < size:
            text = f"{self.name}: the message has {size} bytes, expected at most {link.largest_message}"
            return MessageRejected(SIZE_EXCEEDED, text)
        failure = await link.deliver(message.content, deadline)
        if failure is None:
            self.suspects = max(self.suspects - 1, 0)
            return None
        answer = translated(self.name, failure)
        if failure is link.failure and isinstance(answer, MessageRejected) and link.lost > 1:
            self.suspects = max(self.suspects, link.lost)
            text = "the broker closed the link because of one of several messages; the next attempt sends them singly"
            answer = TargetUnavailable(f"{self.name}: {text}")
            answer.__cause__ = failure
        elif isinstance(failure, TimeoutError):
            # A late answer must not meet the next attempt.
            await link.close()
        return answer

    async def close(self) -> None:
        """Close the link."""
        link, self._link = self._link, None
        if link is not None:
            await link.close()


class _Call:
    """The messages of one call: in flight together, except those with a key, which wait for their predecessor."""

    def __init__(self, place: _Place, messages: Sequence[Outgoing], deadline: float) -> None:
        self._place = place
        self._messages = messages
        self._deadline = deadline
        self._answers: list[BuswayError | None] = [None] * len(messages)
        self._stop: BuswayError | None = None
        self._room = asyncio.Semaphore(1 if place.suspects else _MOST_IN_FLIGHT)

    async def run(self) -> list[BuswayError | None]:
        """Send and return the answers."""
        chains: dict[object, list[int]] = {}
        for position, message in enumerate(self._messages):
            chains.setdefault(message.session_id or message.partition_key or position, []).append(position)
        await asyncio.gather(*map(self._send, chains.values()))
        return self._answers

    async def _send(self, positions: Sequence[int]) -> None:
        for position in positions:
            async with self._room:
                answer = self._stop or await self._place.deliver(self._messages[position], self._deadline)
            self._answers[position] = answer
            if self._stop is None and isinstance(answer, TargetUnavailable | TargetRefused):
                self._stop = answer


def translated(where: str, error: Exception) -> BuswayError:
    """Return the error of Busway for one of the connection to the entity *where*."""
    if isinstance(error, ssl.SSLCertVerificationError):
        refused = TargetRefused(f"{where}: the broker's certificate is not trusted: {printable(error.verify_message)}")
        refused.__cause__ = error
        return refused
    if isinstance(error, NoCredit):
        return TargetUnavailable(f"{where}: {error}")
    condition = error.condition if isinstance(error, AmqpError) else None
    seen = "no answer in time" if isinstance(error, TimeoutError) else str(error)[:_LONGEST_TEXT]
    return as_error(reaction_to(condition, UNREACHABLE), where, printable(seen) or type(error).__name__, error)
