"""Sending: each step is in the ledger before the next one."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from shared.codecs.envelope import MESSAGE
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.line.routing import Target
from shared.protocols import Outgoing, Output
from shared.resend.edits import Edits
from shared.resend.evidence import (
    SEND_SECONDS,
    Answer,
    Question,
    View,
    look,
    may_look,
    never_entered,
    readable,
)
from shared.resend.ledger import REFUSED, SENDING, SENT, Ledger
from shared.resend.letters import Letter
from shared.resend.numbering import cancel_marks, next_number
from shared.resend.places import Destination, Place, Scene, destination_of, place_of

type Routing = Callable[[Letter], Awaitable[Destination | str]]
"""Returns where a message goes, or why that is not known."""


class PreparedMessage(NamedTuple):
    """A message to send: its key, and where it goes in which form."""

    key: str
    destination: Destination
    outgoing: Outgoing
    mark: str | None = None
    """See `Entry.mark`."""


@dataclass(slots=True)
class Attempt:
    """The result of one attempt: keys by what happened to them, and the error that ended it, if any."""

    sent: list[str] = field(default_factory=list)
    rejected: dict[str, str] = field(default_factory=dict)
    """Messages that stay through their own fault, with the reason; the others go on."""
    unclear: list[str] = field(default_factory=list)
    """Messages that the target may have accepted, although no answer came."""
    error: BuswayError | None = None


class Delivery(ABC):
    """How a run gets messages to where they go."""

    keeps_order = False
    """Whether a message waits for the earlier ones of its session."""
    begins_with_one = False
    """Whether the first send is of one message: if it is interrupted, only that one is in doubt."""

    def __init__(self, ledger: Ledger) -> None:
        """Note each step in *ledger*."""
        self.ledger = ledger

    @abstractmethod
    async def prepare(self, key: str, letter: Letter) -> PreparedMessage | str:
        """Return a message as it is to be sent, or why it cannot be sent."""

    @abstractmethod
    async def send(self, messages: Sequence[PreparedMessage]) -> Attempt:
        """Send *messages*, all to one destination, in their order."""

    async def answers(self, to: str, questions: Sequence[Question], stopping: asyncio.Event) -> Mapping[str, Answer]:  # noqa: ARG002 - nothing is known
        """
        Return what is known about messages whose send to *to* was interrupted, nothing if it is *stopping*.

        Raises BuswayError if nothing can be found out.
        """
        return dict.fromkeys((question.key for question in questions), Answer.UNCLEAR)

    async def end(self) -> None:  # noqa: B027 - nothing is left there
        """Leave nothing at the targets that a later run does not need; raises nothing but what the ledger raises."""


class TargetDelivery(Delivery):
    """
    Sends messages of one entity to their destinations.

    A subclass may send them in another way, or do more at the target before they count as sent.
    """

    keeps_order = begins_with_one = True
    accepted_is = SENT
    """The state of a message that the target has accepted; with ACCEPTED, `confirm` notes when it is SENT."""

    def __init__(
        self,
        scene: Scene,
        ledger: Ledger,
        edits: Edits,
        routing: Routing,
        outputs: Mapping[str, Output],
    ) -> None:
        """Send through *outputs*, by the alias of their connection."""
        super().__init__(ledger)
        self.scene = scene
        self._edits = edits
        self._routing = routing
        self._outputs = outputs
        self._numbered: set[Destination] = set()

    async def prepare(self, key: str, letter: Letter) -> PreparedMessage | str:
        """Return *letter* as it is to be sent, or why it cannot be sent."""
        destination = await self._routing(letter)
        if isinstance(destination, str):
            return destination
        fit = self.scene.configuration.connections[destination.alias].end.fit(MESSAGE)
        target = Target(self._outputs[destination.alias], destination.site, destination.entity, fit)
        try:
            outgoing = target.outgoing(self._edits.resent(letter, self.scene.place, self.ledger))
        except MessageRejected as error:
            return str(error)
        return PreparedMessage(key, destination, outgoing)

    async def send(self, messages: Sequence[PreparedMessage]) -> Attempt:
        """Send *messages*, all to one destination, in their order."""
        result = Attempt()
        for some in self.parts(messages):
            if result.error is None:
                await self.send_part(some, result)
        return result

    def parts(self, messages: Sequence[PreparedMessage]) -> Iterable[Sequence[PreparedMessage]]:
        """Return what is sent together, one after the other; after an error the rest is not sent."""
        return [messages]

    async def send_part(self, messages: Sequence[PreparedMessage], result: Attempt) -> None:
        """Send *messages* together, and add to *result* what happened to each."""
        destination, keys = messages[0].destination, [message.key for message in messages]
        to = str(destination)
        await self._note_number(destination, messages[0].outgoing.session_id)
        await self.ledger.note(SENDING, keys, to, marks=[message.mark for message in messages if message.mark])
        answers = await self.transfer(destination, messages)
        accepted: dict[str, int | None] = {}
        rejected: dict[str, str] = {}
        refused: list[str] = []
        for key, answer in zip(keys, answers, strict=True):
            if answer is None or isinstance(answer, int):
                accepted[key] = answer
            elif isinstance(answer, MessageRejected):
                rejected[key] = f"the target refuses it: {answer.description}"
            elif was_answered(answer):
                refused.append(key)
            else:
                result.unclear.append(key)
            if isinstance(answer, TargetRefused | TargetUnavailable):
                result.error = answer
        if result.unclear:
            self.ledger.has_sent()
        numbers = [number for number in accepted.values() if number is not None]
        await self.ledger.note(self.accepted_is, accepted, to, numbers=numbers)
        await self.ledger.note(REFUSED, [*rejected, *refused], to)
        result.rejected |= rejected
        await self.confirm([*accepted], messages, result)

    async def transfer(
        self, destination: Destination, messages: Sequence[PreparedMessage]
    ) -> Sequence[BuswayError | int | None]:
        """Return for each message the error, or None if the target has accepted it, or its number there."""
        outgoing = [message.outgoing for message in messages]
        output = self._outputs[destination.alias]
        return await output.send(destination.entity, outgoing, timeout_seconds=SEND_SECONDS)

    async def confirm(self, accepted: Sequence[str], messages: Sequence[PreparedMessage], result: Attempt) -> None:  # noqa: ARG002 - of a subclass
        """Do what is left to do for *accepted* ones of *messages*, and add to *result* which of them are sent."""
        result.sent += accepted

    async def _note_number(self, destination: Destination, session_id: str | None) -> None:
        """Note where the numbers of a destination begin, which shows later what has entered it."""
        to = str(destination)
        if destination not in self._numbered and self.ledger.run not in self.ledger.marks_of(to):
            _, entity = self.visible(destination)
            if entity is not None:
                await next_number(entity, self.scene.settings, session_id, to, self.ledger, is_mark=True)
            self._numbered.add(destination)

    async def end(self) -> None:
        """Cancel the marks that show nothing any more."""
        await cancel_marks(self.scene, self.ledger)

    async def answers(self, to: str, questions: Sequence[Question], stopping: asyncio.Event) -> Mapping[str, Answer]:
        """Return what a look at the destination shows."""
        scene, ledger = self.scene, self.ledger
        places, entity = self.visible(destination_of(to, scene.configuration))
        if places and not await may_look((question.entry for question in questions), ledger, stopping):
            return {}
        view = await look(places, entity, scene.place, scene.settings, ledger)
        found = await self.shown(view, questions, stopping)
        rest = [question for question in questions if question.key not in found]
        never = await never_entered(rest, entity, scene.settings, view, ledger) if rest and entity is not None else []
        judged = dict.fromkeys((question.key for question in rest), Answer.UNCLEAR)
        return judged | dict.fromkeys((question.key for question in never), Answer.NOT_SENT) | found

    def visible(self, destination: Destination) -> tuple[Sequence[Place], Place | None]:
        """Return where copies that are sent to *destination* can be seen, and the entity whose numbers they get."""
        place = readable(self.scene.place, destination, self.scene.configuration)
        return [] if place is None else [place], place_of(destination, self.scene.configuration)

    async def shown(self, view: View, questions: Sequence[Question], stopping: asyncio.Event) -> dict[str, Answer]:  # noqa: ARG002 - of a subclass
        """Return what the view of the target shows of messages; its numbers decide about the others."""
        return {question.key: Answer.SENT for question in questions if question.key in view.copies}


def was_answered(error: BuswayError) -> bool:
    """Return whether the target itself has said that it did not accept the message."""
    if isinstance(error, TargetUnavailable):
        return error.retry_after is not None  # it is busy, and says when to come back
    return isinstance(error, TargetRefused | MessageRejected)
