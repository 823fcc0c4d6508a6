"""
How messages are sent to the target: as they are, with a stamp that identifies each copy.

Dead letters and deferred messages are set aside there as they were at the source. Nobody can send to a dead-letter
queue, or send a deferred message. Each is sent to the entity, received there, and dead-lettered or deferred. If another
receiver takes a copy in between, the run ends with the first one.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from cli.evacuation.pairs import Pair
from cli.evacuation.receivers import TargetReceivers
from cli.evacuation.survey import Share
from shared.amqp.values import Value, string, timestamp
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.message.message import Message
from shared.message.ttl import Remaining
from shared.protocols import Output
from shared.resend.delivery import Attempt, PreparedMessage, TargetDelivery
from shared.resend.edits import RESENT_FROM, Edits, resent_key, stamp_of
from shared.resend.evidence import Answer, Question, View, look
from shared.resend.ledger import ACCEPTED, REFUSED, SENDING, SENT, Ledger
from shared.resend.letters import DESCRIPTION, REASON, Letter
from shared.resend.numbering import SCHEDULED_TIME
from shared.resend.peek import opened_peeker, peek_on
from shared.resend.places import Destination, Place, Scene, place_of
from shared.resend.receiver import Receiver
from shared.resend.source import LockedMessage, SessionUnavailable

EVACUATED_TO = "repl-evacuated-to"
"""The property that says for which subscription of a topic a copy is."""
_PLACING_MILLISECONDS = 3_600_000
"""The least life of a copy that is not set aside yet: it must not expire before that."""


class MoveEdits(Edits):
    """The changes of a message that is moved: it keeps everything, and the end of its life."""

    def __init__(self, pair: Pair, share: Share) -> None:
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


_AT_ONCE = 100
_RECEIVE_SECONDS = 1.0
_PATIENCE_SECONDS = 10.0


class PlacementDelivery(MoveDelivery):
    """Sends dead letters or deferred messages, and sets them aside at the target."""

    accepted_is = ACCEPTED

    def __init__(
        self,
        pair: Pair,
        share: Share,
        scene: Scene,
        ledger: Ledger,
        outputs: Mapping[str, Output],
        *,
        targets: TargetReceivers,
        patience: float,
    ) -> None:
        """Receive the copies through *targets*; what another receiver has locked is waited for, *patience* seconds."""
        super().__init__(pair, share, scene, ledger, outputs)
        self._targets = targets
        self._patience = patience
        self._end: TargetRefused | None = None
        """Why nothing more may be sent."""

    def parts(self, messages: Sequence[PreparedMessage]) -> Iterable[Sequence[PreparedMessage]]:
        """Return the messages of one session together."""
        groups: dict[str | None, list[PreparedMessage]] = {}
        for message in messages:
            groups.setdefault(self._session_of(message.outgoing.session_id), []).append(message)
        return groups.values()

    def _session_of(self, session_id: str | None) -> str | None:
        return session_id if self.pair.requires_session else None

    async def send_part(self, messages: Sequence[PreparedMessage], result: Attempt) -> None:
        """Send *messages* of one session, if it is free at the target; raises TargetRefused after the first loss."""
        if self._end is not None:
            raise self._end
        try:
            await self._targets.of(self._session_of(messages[0].outgoing.session_id))
        except SessionUnavailable as error:
            result.rejected |= dict.fromkeys((message.key for message in messages), str(error))
        else:
            await super().send_part(messages, result)

    async def confirm(self, accepted: Sequence[str], messages: Sequence[PreparedMessage], result: Attempt) -> None:
        """Set *accepted* ones of *messages* aside."""
        receiver = await self._targets.of(self._session_of(messages[0].outgoing.session_id))
        placed = await self._place(receiver, accepted)
        await self.ledger.note(SENT, placed, str(self.pair.destination))
        result.sent += [key for key in accepted if key in placed]
        taken = [key for key in accepted if key not in placed]
        if taken:
            text = "another receiver took it, or it was dropped as a duplicate; stop the receivers there"
            refused = f"{self.pair.target} accepted a message, and it was not there to be set aside: {text}"
            result.rejected |= dict.fromkeys(taken, refused)
            result.error = self._end = TargetRefused(refused)

    def visible(self, destination: Destination) -> tuple[Sequence[Place], Place | None]:
        """Return the target, and its dead-letter queue where copies are set aside there."""
        (target,), entity = super().visible(destination)
        return (target, target.dead_letters()) if self.share is Share.DEAD else (target,), entity

    async def shown(self, view: View, questions: Sequence[Question], stopping: asyncio.Event) -> dict[str, Answer]:
        """Return which copies are set aside, after setting aside those that are not yet."""
        wanted = {question.key: question for question in questions}
        waiting: dict[str | None, set[str]] = {}
        for key in wanted.keys() & view.copies.keys():
            if not view.copies[key].is_set_aside:
                waiting.setdefault(self._session_of(view.copies[key].session_id), set()).add(key)
        locked: set[str] = set()
        for session_id, keys in waiting.items():
            try:
                receiver = await self._targets.of(session_id)
                locked |= keys - (await self._place(receiver, keys, self._patience, stopping)).keys()
            except SessionUnavailable:
                locked |= keys
        placed = wanted.keys() & view.copies.keys() - locked
        if locked:
            # Another receiver had locked it, and may have deferred or completed it meanwhile.
            scene = self.scene
            again = await look(self.visible(self.pair.destination)[0], None, scene.place, scene.settings, self.ledger)
            placed |= {key for key in locked if key in again.copies and again.copies[key].is_set_aside}
        # The target had one that it has accepted: its numbers do not show where it is now.
        accepted = {key for key, question in wanted.items() if question.entry.state == ACCEPTED}
        found = dict.fromkeys(accepted, Answer.UNCLEAR) | dict.fromkeys(locked, Answer.LOCKED)
        return found | dict.fromkeys(placed, Answer.SENT)

    async def _place(
        self,
        receiver: Receiver,
        keys: Iterable[str],
        patience: float | None = None,
        stopping: asyncio.Event | None = None,
    ) -> dict[str, int | None]:
        """Receive the copies with *keys* and set them aside; return those that came in time, with their numbers."""
        placed: dict[str, int | None] = {}
        waiting = set(keys)
        others: list[LockedMessage] = []
        loop = asyncio.get_running_loop()
        end = loop.time() + (_PATIENCE_SECONDS if patience is None else patience)
        try:
            while waiting and loop.time() < end and not (stopping is not None and stopping.is_set()):
                lost = await receiver.renew(others)
                others = [other for other in others if other not in lost]
                mine: dict[str, tuple[LockedMessage, Letter]] = {}
                for message in await receiver.receive(_AT_ONCE, _RECEIVE_SECONDS):
                    key = None if message.letter is None else resent_key(message.letter, self.scene.place, self.ledger)
                    if key in waiting and key is not None and message.letter is not None:
                        mine[key] = message, message.letter
                    else:
                        others.append(message)
                try:
                    # These leave the entity next: without their numbers it looks as if somebody took them.
                    numbers = [number for _, letter in mine.values() if (number := letter.number) is not None]
                    known = numbers if len(numbers) == len(mine) else ()
                    await self.ledger.note(ACCEPTED, mine, str(self.pair.destination), numbers=known)
                except BuswayError:
                    others += [message for message, _ in mine.values()]
                    raise
                await self._set_aside(receiver, mine.values())
                placed |= {key: letter.number for key, (_, letter) in mine.items()}
                waiting -= mine.keys()
        except TargetUnavailable:
            await self._targets.close()
            raise
        finally:
            await receiver.give_back(others)
        return placed

    async def _set_aside(self, receiver: Receiver, copies: Iterable[tuple[LockedMessage, Letter]]) -> None:
        by_reason: dict[tuple[str | None, str | None], list[LockedMessage]] = {}
        for message, letter in copies:
            by_reason.setdefault((letter.text(REASON), letter.text(DESCRIPTION)), []).append(message)
        for (reason, description), held in by_reason.items():
            if self.share is Share.DEFERRED:
                await receiver.defer(held)
            else:
                await receiver.dead_letter(held, reason, description)
