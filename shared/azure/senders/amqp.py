"""
Sends encoded messages to the queues and topics of an AMQP 1.0 broker, each with the bytes that it has.

Messages of one session or partition key wait for each other's answers, because a broker may release one and accept the
next. All others leave without waiting, so that their rate does not depend on the distance.
"""

import asyncio
import math
import ssl
from collections import deque
from collections.abc import Mapping, Sequence

from shared.amqp.values import Malformed
from shared.azure.senders.amqp_endpoint import AmqpEndpoint
from shared.azure.senders.amqp_frames import AmqpError
from shared.azure.senders.amqp_link import AmqpLink, Delivery, NoCredit
from shared.azure.senders.amqp_trial import QUIET_SECONDS, Blame, BreaksLinks, Unclear, is_unexplained
from shared.azure.senders.conditions import (
    REFUSED,
    SIZE_EXCEEDED,
    UNREACHABLE,
    about_the_link,
    as_error,
    reaction_to,
)
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.printable import printable
from shared.protocols import Outgoing

_LONGEST_TEXT = 200
_NO_CREDIT = "the broker takes no messages: it grants no credit"


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
        self._places: dict[str, _Place] = {}

    async def send(
        self, entity: str, messages: Sequence[Outgoing], *, timeout_seconds: float
    ) -> list[BuswayError | None]:
        """Send *messages* to a queue, topic or address, beside other calls; see `shared.protocols.Output`."""
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        place = self._places.get(entity)
        if place is None:
            name, capability = f"{self._site}/{entity}", self._capabilities.get(entity)
            blame = Blame(self._quiet_seconds)
            place = self._places[entity] = _Place(name, self._endpoint, entity, capability, blame)
        if not place.suspects:
            return await _Call(place, messages, deadline).run()
        try:
            async with asyncio.timeout_at(deadline):
                await place.alone.acquire()
        except TimeoutError:
            return [TargetUnavailable(f"{place.name}: other messages are sent one by one")] * len(messages)
        try:
            return await _Call(place, messages, deadline).run()
        finally:
            place.alone.release()

    async def close(self) -> None:
        """Close all connections."""
        places, self._places = self._places, {}
        for place in places.values():
            await place.close()


class _Place:
    """An address, and the link to it, which is opened when it is needed."""

    def __init__(self, name: str, endpoint: AmqpEndpoint, address: str, capability: str | None, blame: Blame) -> None:
        self.name = name
        self.blame = blame
        self.suspects = 0
        """Messages that were in flight when the broker closed the link because of one; they are sent one by one."""
        self.alone = asyncio.Lock()
        """Held by a call that sends them, so that no other call has messages in flight."""
        self._endpoint = endpoint
        self._address = address
        self._capability = capability
        self._link: AmqpLink | None = None
        self._opening = asyncio.Lock()
        self._broken: AmqpLink | None = None
        # The messages that were in flight when the broker closed the last link, and the one before.
        self._lost: set[int] = set()
        self._lost_before: set[int] = set()

    async def opened(self, deadline: float) -> AmqpLink:
        """Return the open link; raises as `AmqpLink.open`, and TimeoutError at *deadline*."""
        if self._link is not None and self._link.failure is None:
            return self._link
        async with asyncio.timeout_at(deadline), self._opening:
            if self._link is None or self._link.failure is not None:
                self._link = await self._new_link()
            return self._link

    def accepted(self, count: int) -> None:
        """Note that messages were accepted."""
        self.suspects = max(self.suspects - count, 0)

    def answer(self, link: AmqpLink, failure: Exception, content: bytes) -> BuswayError:
        """Return the error of a message that was sent over *link* and failed."""
        if failure is link.failure and is_unexplained(failure):
            self._note_break(link, content)
        answer = translated(self.name, failure)
        if failure is link.failure and isinstance(answer, MessageRejected) and link.lost > 1:
            self.suspects = max(self.suspects, link.lost)
            text = "the broker closed the link because of one of several messages; the next attempt sends them singly"
            answer = TargetUnavailable(f"{self.name}: {text}")
            answer.__cause__ = failure
        return answer

    async def try_alone(self, content: bytes, deadline: float) -> BuswayError | None:
        """Find out whether the broker closes the connection because of a message; return the answer to it."""
        try:
            async with asyncio.timeout_at(deadline):
                failure = await self.blame.try_(content, self._new_link)
        except (AmqpError, OSError, Malformed) as error:
            return about_the_link(translated(self.name, error), self.name)
        except Unclear as error:
            return TargetUnavailable(f"{self.name}: {error}")
        if failure is None or isinstance(failure, BreaksLinks):
            self.suspects = max(self.suspects - 1, 0)
        if isinstance(failure, BreaksLinks):
            return MessageRejected(REFUSED, f"{self.name}: {failure}")
        return None if failure is None else translated(self.name, failure)

    def _note_break(self, link: AmqpLink, content: bytes) -> None:
        """Note a message that was in flight when the broker closed *link* for an unknown reason."""
        if link.lost == 1:
            self.blame.add(content)
            return
        if link is not self._broken:
            self._broken, self._lost_before, self._lost = link, self._lost, set()
        self._lost.add(hash(content))
        if hash(content) in self._lost_before:
            # A restart loses a message once.
            self.suspects = max(self.suspects, link.lost)

    async def _new_link(self) -> AmqpLink:
        return await AmqpLink.open(self._endpoint, self._address, self._capability)

    async def close(self) -> None:
        """Close the link."""
        link, self._link = self._link, None
        if link is not None:
            await link.close()


class _Call:
    """
    The messages of one call: in flight together, except those with a key, which wait for their predecessor.

    The answer to a message sends its successor at once; the call itself runs again when nothing is in flight.
    """

    def __init__(self, place: _Place, messages: Sequence[Outgoing], deadline: float) -> None:
        self._place = place
        self._link: AmqpLink
        """That over which messages are in flight."""
        self._messages = messages
        self._deadline = deadline
        self._room = 1 if place.suspects else len(messages)
        self._answers: dict[int, BuswayError | None] = {}
        self._stop: BuswayError | None = None
        self._in_flight: dict[int, Delivery] = {}
        self._landed = asyncio.Event()
        """Nothing is in flight."""
        self._ready: deque[int] = deque()
        self._successors: dict[int, int] = {}
        last: dict[str, int] = {}
        for position, message in enumerate(messages):
            key = message.session_id or message.partition_key
            if key and key in last:
                self._successors[last[key]] = position
            else:
                self._ready.append(position)
            if key:
                last[key] = position

    async def run(self) -> list[BuswayError | None]:
        """Send and return the answers."""
        try:
            while self._ready and self._stop is None:
                content = self._messages[self._ready[0]].content
                if content in self._place.blame:
                    self._finish(self._ready.popleft(), await self._place.try_alone(content, self._deadline))
                else:
                    await self._send()
        finally:
            for delivery in self._in_flight.values():
                delivery.withdraw()
        return [self._answers.get(position, self._stop) for position in range(len(self._messages))]

    async def _send(self) -> None:
        """Send until nothing is in flight: all have answers, the link has ended, or the deadline has passed."""
        try:
            link = await self._place.opened(self._deadline)
        except (AmqpError, OSError, Malformed) as error:
            self._stop = about_the_link(translated(self._place.name, error), self._place.name)
            return
        self._link = link
        self._give()
        link.flush()
        if not self._in_flight:
            return
        self._landed.clear()
        try:
            async with asyncio.timeout_at(self._deadline):
                await self._landed.wait()
        except TimeoutError as error:
            is_sent = any(each.is_sent for each in self._in_flight.values())
            for position, delivery in self._in_flight.items():
                delivery.withdraw()
                failure = error if delivery.is_sent else NoCredit(None, _NO_CREDIT)
                self._finish(position, self._place.answer(link, failure, self._messages[position].content))
            self._in_flight.clear()
            if is_sent:
                # A late answer must not meet the next attempt.
                await link.close()

    def _give(self) -> None:
        """Give the link what may be in flight now."""
        # Once for each message: names of this function are faster than attributes.
        link, answered, blame = self._link, self._answered, self._place.blame
        ready, messages, in_flight = self._ready, self._messages, self._in_flight
        largest = link.largest_message or math.inf
        while ready and len(in_flight) < self._room:
            position = ready[0]
            content = messages[position].content
            if blame.breaks and content in blame:
                return  # it is tried when nothing is in flight
            ready.popleft()
            if len(content) > largest:
                text = f"the message has {len(content)} bytes, expected at most {link.largest_message}"
                self._finish(position, MessageRejected(SIZE_EXCEEDED, f"{self._place.name}: {text}"))
            else:
                in_flight[position] = link.give(content, answered, position)

    def _answered(self, positions: Sequence[int], failure: Exception | None) -> None:
        for position in positions:
            del self._in_flight[position]
            content = self._messages[position].content
            self._finish(position, None if failure is None else self._place.answer(self._link, failure, content))
        if failure is None:
            self._place.accepted(len(positions))
        if self._ready and self._stop is None and self._link.failure is None:
            self._give()  # the link sends it once it has handled all answers that have arrived
        if not self._in_flight:
            self._landed.set()

    def _finish(self, position: int, answer: BuswayError | None) -> None:
        """Note the answer to a message; its successor is ready unless the call has to stop."""
        self._answers[position] = answer
        if answer is not None and isinstance(answer, TargetUnavailable | TargetRefused):
            self._stop = self._stop or answer
        elif position in self._successors:
            self._ready.append(self._successors[position])


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
