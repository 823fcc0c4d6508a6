"""The messages of one call to a broker: what may be in flight, and their answers."""

import asyncio
import sys
from collections import deque
from collections.abc import Sequence

from shared.amqp.errors import AmqpError
from shared.amqp.values import Malformed
from shared.ends.amqp.link import AmqpLink, Delivery, NoCredit
from shared.ends.amqp.place import Place, translated
from shared.ends.conditions import SIZE_EXCEEDED, about_the_link
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.protocols import Outgoing

_NO_CREDIT = "the broker takes no messages: it grants no credit"


class Call:
    """
    The messages of one call: in flight together, except those with a key, which wait for their predecessor.

    The answer to a message sends its successor at once; the call itself runs again when nothing is in flight.
    """

    def __init__(self, place: Place, messages: Sequence[Outgoing], deadline: float) -> None:
        self._place = place
        self._link: AmqpLink
        """That over which messages are in flight."""
        self.messages = messages
        self._deadline = deadline
        self._answers: dict[int, BuswayError | None] = {}
        self._stop: BuswayError | None = None
        self._in_flight: dict[int, Delivery] = {}
        self._landed = asyncio.Event()
        """Nothing is in flight."""
        self._ready: deque[int] = deque()
        self._successors: dict[int, int] = {}
        last: dict[str, int] = {}
        for position, message in enumerate(messages):
            key = message.order_key
            if key is not None and key in last:
                self._successors[last[key]] = position
            else:
                self._ready.append(position)
            if key is not None:
                last[key] = position
        self.most_in_flight = len(self._ready)
        """The most messages in flight at once: of those with one key, one."""

    async def run(self) -> list[BuswayError | None]:
        """Send and return the answers."""
        self._room = 1 if self._place.suspects else len(self.messages)
        try:
            while self._ready and self._stop is None:
                content = self.messages[self._ready[0]].content
                if content in self._place.blame:
                    self._finish(self._ready.popleft(), await self._place.try_alone(content, self._deadline))
                else:
                    await self._send()
        finally:
            for delivery in self._in_flight.values():
                delivery.withdraw()
        return [self._answers.get(position, self._stop) for position in range(len(self.messages))]

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
            is_sent = any(delivery.is_sent for delivery in self._in_flight.values())
            for position, delivery in self._in_flight.items():
                delivery.withdraw()
                failure = error if delivery.is_sent else NoCredit("", _NO_CREDIT)
                self._finish(position, self._place.answer(link, failure, self.messages[position].content))
            self._in_flight.clear()
            if is_sent:
                # A late answer must not meet the next attempt.
                await link.close()

    def _give(self) -> None:
        """Give the link what may be in flight now."""
        # Once for each message: names of this function are faster than attributes.
        link, answered, blame = self._link, self._answered, self._place.blame
        ready, messages, in_flight = self._ready, self.messages, self._in_flight
        largest = link.largest_message or sys.maxsize
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
        if failure is None:
            self._accepted(positions)
        else:
            for position in positions:
                del self._in_flight[position]
                content = self.messages[position].content
                self._finish(position, self._place.answer(self._link, failure, content))
        if self._ready and self._stop is None and self._link.failure is None:
            self._give()  # the link sends it once it has handled all answers that have arrived
        if not self._in_flight:
            self._landed.set()

    def _accepted(self, positions: Sequence[int]) -> None:
        # Once for each message: names of this function are faster than attributes.
        in_flight, answers, ready, successors = self._in_flight, self._answers, self._ready, self._successors
        for position in positions:
            del in_flight[position]
            answers[position] = None
            if position in successors:
                ready.append(successors[position])
        self._place.accepted(len(positions))

    def _finish(self, position: int, answer: BuswayError | None) -> None:
        """Note the answer to a message; its successor is ready unless the call has to stop."""
        self._answers[position] = answer
        if answer is not None and isinstance(answer, TargetUnavailable | TargetRefused):
            self._stop = self._stop or answer
        elif position in self._successors:
            self._ready.append(self._successors[position])
