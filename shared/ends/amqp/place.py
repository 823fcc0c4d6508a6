"""The address of a broker, the link to it, and what its breaks say about messages."""

import asyncio
import ssl

from shared.amqp.errors import AmqpError, Violation
from shared.amqp.values import Malformed
from shared.ends.amqp.endpoint import AmqpEndpoint
from shared.ends.amqp.link import AmqpLink, NoCredit
from shared.ends.amqp.trial import Blame, BreaksLinks, Unclear, may_be_because_of
from shared.ends.conditions import OVERLOADED, REFUSED, UNREACHABLE, about_the_link, as_error, reaction_to
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.printable import printable

_LONGEST_TEXT = 200


class Place:
    """An address, and the link to it, which is opened when it is needed."""

    def __init__(self, name: str, endpoint: AmqpEndpoint, address: str, capability: str | None, blame: Blame) -> None:
        self.name = name
        self.blame = blame
        self.suspects = 0
        """Messages that were in flight when the broker closed the link because of one; they are sent one by one."""
        self.in_flight = 0
        """The most messages that the calls which go on may have in flight at once."""
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

    @property
    def link(self) -> AmqpLink | None:
        """The link, None if it is not open."""
        return self._link if self._link is not None and self._link.failure is None else None

    async def opened(self, deadline: float) -> AmqpLink:
        """Return the open link; raises as `AmqpLink.open`, and TimeoutError at *deadline*."""
        if (link := self.link) is not None:
            return link
        async with asyncio.timeout_at(deadline), self._opening:
            if (link := self.link) is None:
                link = self._link = await self._new_link()
            return link

    def accepted(self, count: int) -> None:
        """Note that messages were accepted."""
        self.suspects = max(self.suspects - count, 0)

    def answer(self, link: AmqpLink, failure: Exception, content: bytes) -> BuswayError:
        """Return the error of a message that was sent over *link* and failed."""
        if failure is link.failure and may_be_because_of(content, failure):
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


def translated(where: str, error: Exception) -> BuswayError:
    """Return the error of Busway for one of the connection to the entity *where*."""
    if isinstance(error, ssl.SSLCertVerificationError):
        refused = TargetRefused(f"{where}: the broker's certificate is not trusted: {printable(error.verify_message)}")
        refused.__cause__ = error
        return refused
    if isinstance(error, NoCredit):
        return TargetUnavailable(f"{where}: {error}")
    # A broker that violates the protocol says nothing of a message.
    condition = error.condition if isinstance(error, AmqpError) and not isinstance(error, Violation) else None
    seen = "no answer in time" if isinstance(error, TimeoutError) else str(error)[:_LONGEST_TEXT]
    reaction = reaction_to(condition, UNREACHABLE)
    # Brokers of other makers answer so to what they stumble over, which may be a message.
    reaction = UNREACHABLE if reaction is OVERLOADED else reaction
    return as_error(reaction, where, printable(seen) or type(error).__name__, error)
