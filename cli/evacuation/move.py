"""How messages are sent to the target: as they are, with a stamp that identifies each copy."""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from cli.evacuation.pairs import Pair
from cli.evacuation.survey import Share
from shared.amqp.values import Value, string
from shared.errors import MessageRejected
from shared.message.message import Message
from shared.message.ttl import Remaining
from shared.protocols import Output
from shared.resend.delivery import Attempt, PreparedMessage, TargetDelivery
from shared.resend.edits import RESENT_FROM, resent_key, stamp_of
from shared.resend.evidence import Answer, Question, answers_at
from shared.resend.ledger import ACCEPTED, SENT, Ledger
from shared.resend.letters import Letter
from shared.resend.peek import opened_peeker, peek_on
from shared.resend.places import Destination, Place, Scene, place_of

EVACUATED_TO = "repl-evacuated-to"
"""The property that says for which subscription of a topic a copy is."""
_PLACING_MILLISECONDS = 3_600_000
"""The least life of a copy that is not set aside yet: it must not expire before that."""


def dropped(pair: Pair) -> str:
    """Return why a message stays that the target has accepted, and that is not there."""
    return f"{pair.destination} accepted it, and it is not there: its id was seen before, or a receiver took it"


class MoveEdits:
    """The changes of a message that is moved: it keeps everything, and the end of its life."""

    def __init__(self, pair: Pair, share: Share) -> None:
        """Move messages of *share*."""
        self._share = share
        self._to = pair.target.entity if pair.is_gated else None

    def resent(self, letter: Letter, place: Place, ledger: Ledger) -> Message:
        """Return the message to send for a letter of *place*, signed by *ledger*; raises MessageRejected."""
        if letter.message is None:
            raise MessageRejected("MalformedMessage", "its sections cannot be read")
        message = letter.message.copy()
        changes: dict[str, Value | None] = {RESENT_FROM: stamp_of(place, letter.key or "", ledger)}
        if self._to is not None and self._share is not Share.SCHEDULED:
            changes[EVACUATED_TO] = string(self._to)
        message.set_properties(changes)
        lives = self._share in (Share.ACTIVE, Share.DEFERRED)
        if lives and Remaining().expires(message, datetime.now(UTC)):
            raise MessageRejected("Expired", "its time to live is over: its entity removes it")
        if self._share in (Share.DEAD, Share.DEFERRED) and message.time_to_live:
            message.time_to_live = max(message.time_to_live, _PLACING_MILLISECONDS)
        return message


class MoveDelivery(TargetDelivery):
    """Sends messages of one share of an entity."""

    def __init__(self, pair: Pair, share: Share, scene: Scene, ledger: Ledger, outputs: Mapping[str, Output]) -> None:
        """Send messages of *share*, which are in the entity of *scene*."""
        super().__init__(scene, ledger, MoveEdits(pair, share), self._route, outputs)
        self.pair = pair
        self.share = share
        self.place = scene.place
        self.settings = scene.settings
        # A target that drops duplicates accepts them: an id can be one that it has seen before.
        self._checks_arrival = pair.drops_duplicates and share is Share.ACTIVE
        self._seen: dict[int, int] = {}
        if pair.target_is_partitioned:
            self._numbered.add(pair.destination)  # its numbers show nothing: no mark is scheduled there
        if self._checks_arrival:
            self.accepted_is = ACCEPTED

    async def send(self, messages: Sequence[PreparedMessage]) -> Attempt:
        """Send *messages*; at a target that drops duplicates only those count that are seen there."""
        attempt = await super().send(messages)
        if not self._checks_arrival or not attempt.sent:
            return attempt
        there = await self._arrived()
        accepted, attempt.sent = attempt.sent, [key for key in attempt.sent if key in there]
        await self.ledger.note(SENT, attempt.sent, str(self.pair.destination))
        attempt.rejected |= {key: dropped(self.pair) for key in accepted if key not in there}
        return attempt

    async def _arrived(self) -> set[str]:
        """Return the keys of the copies that have come to the target since the last look."""
        found: set[str] = set()
        async with opened_peeker(self.pair.target, self.settings) as opened:
            async for letter in peek_on(opened, self.pair.target, self._seen):
                key = resent_key(letter, self.place, self.ledger)
                if key is not None:
                    found.add(key)
        return found

    async def _route(self, _: Letter) -> Destination:
        return self.pair.destination

    async def answers(self, to: str, questions: Sequence[Question], stopping: asyncio.Event) -> Mapping[str, Answer]:  # noqa: ARG002 - it is always the target
        """Return what a look at the target shows."""
        return await answers_at(
            questions,
            self.place,
            self.pair.target,
            self.settings,
            stopping,
            ledger=self.ledger,
            entity=None
            if self.pair.target_is_partitioned
            else place_of(self.pair.destination, self._scene.configuration),
        )
