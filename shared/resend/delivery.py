"""Sending: each step is in the ledger before the next one."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from shared.codecs.envelope import MESSAGE
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.line.routing import Target
from shared.message.message import Message
from shared.protocols import Outgoing, Output
from shared.resend.evidence import SEND_SECONDS, Answer, Question, answers
from shared.resend.ledger import REFUSED, SENDING, SENT, Ledger
from shared.resend.letters import Letter
from shared.resend.numbering import cancel_marks, next_number
from shared.resend.places import Destination, Place, Scene, destination_of, place_of

type Routing = Callable[[Letter], Awaitable[Destination | str]]
"""Returns where a message goes, or why that is not known."""


class Changes(Protocol):
    """What is changed in a message that is sent again."""

    def resent(self, letter: Letter, place: Place, ledger: Ledger) -> Message:
        """Return the message to send for a letter of *place*, signed by *ledger*; raises MessageRejected."""
        ...


class PreparedMessage(NamedTuple):
    """A message to send: its key, and where it goes in which form."""

    key: str
    destination: Destination
    outgoing: Outgoing


@dataclass(slots=True)
class Attempt:
    """The result of one attempt: keys by what happened to them, and the error that ended it, if any."""

    sent: list[str] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)
    """Messages that stay through their own fault, with the reason; the others go on."""
    refused: list[str] = field(default_factory=list)
    """Messages that the target has not accepted, for a reason that is not theirs."""
    unclear: list[str] = field(default_factory=list)
    """Messages that the target may have accepted, although no answer came."""
    error: BuswayError | None = None


class Delivery(Protocol):
    """How a run gets messages to where they go."""

    ledger: Ledger
    keeps_order: bool
    """Whether a message waits for the earlier ones of its session."""
    begins_with_one: bool
    """Whether the first send is of one message: if it is interrupted, only that one is in doubt."""

    async def prepare(self, key: str, letter: Letter) -> PreparedMessage | str:
        """Return a message as it is to be sent, or why it cannot be sent."""
        ...

    async def send(self, messages: Sequence[PreparedMessage]) -> Attempt:
        """Send *messages*, all to one destination, in their order."""
        ...

    async def answers(self, to: str, questions: Sequence[Question], stopping: asyncio.Event) -> Mapping[str, Answer]:
        """
        Return what is known about messages whose send to *to* was interrupted, nothing if it is *stopping*.

        Raises BuswayError if nothing can be found out.
        """
        ...

    async def end(self) -> None:
        """Leave nothing at the targets that a later run does not need; raises nothing but what the ledger raises."""
        ...


class TargetDelivery:
    """Sends messages of one entity to their destinations; it is a `Delivery`."""

    keeps_order = begins_with_one = True
    accepted_is = SENT
    """The state of a message that the target has accepted."""

    def __init__(
        self,
        scene: Scene,
        ledger: Ledger,
        edits: Changes,
        routing: Routing,
        outputs: Mapping[str, Output],
    ) -> None:
        """Send through *outputs*, by the alias of their connection."""
        self._scene = scene
        self.ledger = ledger
        self._edits = edits
        self._routing = routing
        self._outputs = outputs
        self._numbered: set[Destination] = set()

    async def prepare(self, key: str, letter: Letter) -> PreparedMessage | str:
        """Return *letter* as it is to be sent, or why it cannot be sent."""
        destination = await self._routing(letter)
        if isinstance(destination, str):
            return destination
        fit = self._scene.configuration.connections[destination.alias].end.fit(MESSAGE)
        target = Target(self._outputs[destination.alias], destination.site, destination.entity, fit)
        try:
            outgoing = target.outgoing(self._edits.resent(letter, self._scene.place, self.ledger))
        except MessageRejected as error:
            return str(error)
        return PreparedMessage(key, destination, outgoing)

    async def send(self, messages: Sequence[PreparedMessage]) -> Attempt:
        """Send *messages*, all to one destination, in their order."""
        destination = messages[0].destination
        keys = [message.key for message in messages]
        await self._note_number(destination, messages[0].outgoing.session_id)
        await self.ledger.note(SENDING, keys, str(destination))
        output = self._outputs[destination.alias]
        answers = await output.send(
            destination.entity, [message.outgoing for message in messages], timeout_seconds=SEND_SECONDS
        )
        result = Attempt()
        for key, answer in zip(keys, answers, strict=True):
            if answer is None:
                result.sent.append(key)
            elif isinstance(answer, MessageRejected):
                result.rejected[key] = f"the target refuses it: {answer.description}"
            elif was_answered(answer):
                result.refused.append(key)
            else:
                result.unclear.append(key)
            if isinstance(answer, TargetRefused | TargetUnavailable):
                result.error = answer
        if result.unclear:
            self.ledger.has_sent()
        await self.ledger.note(self.accepted_is, result.sent, str(destination))
        await self.ledger.note(REFUSED, [*result.rejected, *result.refused], str(destination))
        return result

    async def _note_number(self, destination: Destination, session_id: str | None) -> None:
        """Note where the numbers of a destination begin, which shows later what has entered it."""
        to = str(destination)
        if destination not in self._numbered and self.ledger.run not in self.ledger.marks_of(to):
            entity = place_of(destination, self._scene.configuration)
            if entity is not None:
                await next_number(entity, self._scene.settings, session_id, to, self.ledger, is_mark=True)
            self._numbered.add(destination)

    async def end(self) -> None:
        """Cancel the marks that show nothing any more."""
        await cancel_marks(self._scene, self.ledger)

    async def answers(self, to: str, questions: Sequence[Question], stopping: asyncio.Event) -> Mapping[str, Answer]:
        """Return what a look at the destination shows."""
        destination = destination_of(to, self._scene.configuration)
        return await answers(questions, self._scene, destination, self.ledger, stopping)


def was_answered(error: BuswayError) -> bool:
    """Return whether the target itself has said that it did not accept the message."""
    if isinstance(error, TargetUnavailable):
        return error.retry_after is not None  # it is busy, and says when to come back
    return isinstance(error, TargetRefused | MessageRejected)
