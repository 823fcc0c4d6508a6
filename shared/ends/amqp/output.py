"""
Sends encoded messages to the queues and topics of an AMQP 1.0 broker, each with the bytes that it has.

Messages of one session or partition key wait for each other's answers, because a broker may release one and accept the
next. All others leave without waiting, so that their rate does not depend on the distance.

An address has one connection, and a second if many messages may be in flight at once (decision 0090). A broker serves a
connection in a few processes of its own and grants credit to each. So two carry more than one: on the broker's machine
they use another processor, and over a distance twice as many messages are in flight.
"""

import asyncio
import contextlib
from asyncio import get_running_loop
from collections.abc import Mapping, Sequence

from shared.amqp.errors import AmqpError
from shared.amqp.values import Malformed
from shared.ends.amqp.call import Call
from shared.ends.amqp.endpoint import AmqpEndpoint
from shared.ends.amqp.link import AmqpLink
from shared.ends.amqp.place import Place
from shared.ends.amqp.trial import QUIET_SECONDS, Blame
from shared.errors import BuswayError, TargetUnavailable
from shared.protocols import Outgoing

_MANY = 100
"""So many messages in flight at once are worth a second connection."""
_CALM_SECONDS = 60.0
_OPEN_SECONDS = 10.0


class Address:
    """
    An address of a broker.

    After the end of one of the two links only the first is used, until nothing has happened for a minute: so a message
    that makes the broker close connections meets the same one again, and a broker that allows only one has its way.
    """

    def __init__(
        self, name: str, endpoint: AmqpEndpoint, address: str, capability: str | None, quiet_seconds: float
    ) -> None:
        """Use *name* in errors; nothing is opened yet."""
        self._name = name
        self._blame = Blame(quiet_seconds)
        self._first, self._second = (Place(name, endpoint, address, capability, self._blame) for _ in range(2))
        self._pair: tuple[AmqpLink, AmqpLink] | None = None
        """The two links while both are used."""
        self._opening: asyncio.Task[None] | None = None
        self._calm_from = 0.0

    async def send(self, messages: Sequence[Outgoing], deadline: float) -> list[BuswayError | None]:
        """Send *messages*; see `shared.protocols.Output`."""
        first, second = list(range(len(messages))), list[int]()
        if self._has_two():
            first, second = self._parts(messages)
        if not second:
            return await self._send_over(self._first, messages, deadline)
        if not first:
            return await self._send_over(self._second, messages, deadline)
        answers: list[BuswayError | None] = [None] * len(messages)
        async with asyncio.TaskGroup() as group:
            parts = [
                (part, group.create_task(self._send_over(place, [messages[each] for each in part], deadline)))
                for place, part in ((self._first, first), (self._second, second))
            ]
        for part, task in parts:
            for position, answer in zip(part, task.result(), strict=True):
                answers[position] = answer
        return answers

    async def close(self) -> None:
        """Close the connections."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        await self._first.close()
        await self._second.close()

    async def _send_over(self, place: Place, messages: Sequence[Outgoing], deadline: float) -> list[BuswayError | None]:
        call = Call(place, messages, deadline)
        place.in_flight += call.most_in_flight
        self._open_second_if_many()
        try:
            return await (self._run_singly(place, call, deadline) if place.suspects else call.run())
        finally:
            place.in_flight -= call.most_in_flight

    async def _run_singly(self, place: Place, call: Call, deadline: float) -> list[BuswayError | None]:
        try:
            async with asyncio.timeout_at(deadline):
                await place.alone.acquire()
        except TimeoutError:
            return [TargetUnavailable(f"{self._name}: other messages are sent one by one")] * len(call.messages)
        try:
            return await call.run()
        finally:
            place.alone.release()

    def _parts(self, messages: Sequence[Outgoing]) -> tuple[list[int], list[int]]:
        """
        Return the positions of the messages for each connection.

        Messages of one key have the same one in all calls: a call that was cancelled may have some on their way. Those
        without a key stay together, in their order.
        """
        first, second = list[int](), list[int]()
        loose = first if self._first.in_flight <= self._second.in_flight else second
        for position, message in enumerate(messages):
            key = message.order_key
            part = loose if key is None else second if hash(key) & 1 else first
            part.append(position)
        return first, second

    def _has_two(self) -> bool:
        """Return whether both connections are used; not after the end of one."""
        if self._pair is not None and self._pair != (self._first.link, self._second.link):
            self._pair, self._calm_from = None, asyncio.get_running_loop().time() + _CALM_SECONDS
        if self._pair is None:
            # The first gets them all, also those that the end of the second made suspect.
            self._first.suspects = max(self._first.suspects, self._second.suspects)
            self._second.suspects = 0
        return self._pair is not None

    def _open_second_if_many(self) -> None:
        """Begin to open the second connection, which no message waits for, if it is worth it."""
        if self._pair is not None or self._first.in_flight + self._second.in_flight < _MANY:
            return
        loop = asyncio.get_running_loop()
        is_quiet = not (self._first.suspects or self._second.suspects or self._blame.breaks)
        is_opening = self._opening is not None and not self._opening.done()
        if is_quiet and not is_opening and self._first.link is not None and loop.time() >= self._calm_from:
            self._opening = loop.create_task(self._open_second())

    async def _open_second(self) -> None:
        loop = asyncio.get_running_loop()
        self._calm_from = loop.time() + _CALM_SECONDS  # for another attempt, if it fails
        # Without it, all messages go over the first connection, whose errors are theirs.
        with contextlib.suppress(AmqpError, OSError, Malformed):
            second = await self._second.opened(loop.time() + _OPEN_SECONDS)
            if (first := self._first.link) is not None:
                self._pair = first, second


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
