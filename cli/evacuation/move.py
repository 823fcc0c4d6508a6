"""How messages are sent to the target: as they are, with a stamp that identifies each copy."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from cli.evacuation.pairs import Pair
from cli.evacuation.survey import Share
from shared.amqp.values import Value, string, timestamp
from shared.errors import MessageRejected
from shared.message.message import Message
from shared.message.ttl import Remaining
from shared.protocols import Output
from shared.resend.delivery import Attempt, PreparedMessage, TargetDelivery
from shared.resend.edits import RESENT_FROM, Edits, resent_key, stamp_of
from shared.resend.ledger import ACCEPTED, REFUSED, SENDING, SENT, Ledger
from shared.resend.letters import Letter
from shared.resend.numbering import SCHEDULED_TIME
from shared.resend.peek import opened_peeker, peek_on
from shared.resend.places import Destination, Place, Scene, place_of

EVACUATED_TO = "repl-evacuated-to"
"""The property that says for which subscription of a topic a copy is."""
_PLACING_MILLISECONDS = 3_600_000
"""The least life of a copy that is not set aside yet: it must not expire before that."""


class MoveEdits(Edits):
    """The changes of a message that is moved: it keeps everything, and the end of its life."""

    def __init__(self, pair: Pair, share: Share) -> None:
        """Move messages of *share*."""
        super().__init__()
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
        if self._share is Share.SCHEDULED:
            due = letter.message.arrival.scheduled_time
            if due is None:
                raise MessageRejected("MalformedMessage", "it does not say when it is due")
            message.set_annotations({SCHEDULED_TIME: timestamp(due)})
        return message


class MoveDelivery(TargetDelivery):
    """Sends messages of one share of an entity."""

    def __init__(self, pair: Pair, share: Share, scene: Scene, ledger: Ledger, outputs: Mapping[str, Output]) -> None:
        """Send messages of *share*, which are in the entity of *scene*."""

        async def to_target(_: Letter) -> Destination:
            return pair.destination

        super().__init__(scene, ledger, MoveEdits(pair, share), to_target, outputs)
        self.pair = pair
        self.share = share
        # A target that drops duplicates accepts them: an id can be one that it has seen before.
        self._checks_arrival = pair.drops_duplicates and share in (Share.ACTIVE, Share.SCHEDULED)
        self._seen: dict[int, int] = {}
        if self._checks_arrival:
            self.accepted_is = SENDING if share is Share.SCHEDULED else ACCEPTED

    def visible(self, destination: Destination) -> tuple[Sequence[Place], Place | None]:  # noqa: ARG002 - it is always the target
        """Return the target, and the entity whose numbers its copies get; the partitions number for themselves."""
        entity = place_of(self.pair.destination, self.scene.configuration)
        return [self.pair.target], None if self.pair.target_is_partitioned else entity

    async def confirm(self, accepted: Sequence[str], messages: Sequence[PreparedMessage], result: Attempt) -> None:
        """Count *accepted* messages as sent; at a target that drops duplicates only those that are seen there."""
        if not self._checks_arrival or not accepted:
            return await super().confirm(accepted, messages, result)
        there = await self._arrived()
        lost = [key for key in accepted if key not in there]
        arrived = [key for key in accepted if key in there]
        await self.ledger.note(SENT, arrived, str(self.pair.destination))
        result.sent += arrived
        text = "accepted it, and it is not there: its id was seen before, or a receiver took it"
        result.rejected |= dict.fromkeys(lost, f"{self.pair.destination} {text}")
        if self.share is Share.SCHEDULED:  # nobody can take it before it is due
            await self.ledger.note(REFUSED, lost, str(self.pair.destination))
        return None

    async def _arrived(self) -> set[str]:
        """Return the keys of the copies that have come to the target since the last look."""
        found: set[str] = set()
        async with opened_peeker(self.pair.target, self.scene.settings) as opened:
            async for letter in peek_on(opened, self.pair.target, self._seen):
                key = resent_key(letter, self.scene.place, self.ledger)
                if key is not None:
                    found.add(key)
        return found
