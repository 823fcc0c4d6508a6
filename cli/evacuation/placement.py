"""
Messages that are set aside at the target as they were at the source: dead letters and deferred messages.

Nobody can send to a dead-letter queue, or send a deferred message. Each is sent to the entity, received there, and
dead-lettered or deferred. If another receiver takes a copy in between, the run ends with the first one.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from cli.evacuation.move import MoveDelivery
from cli.evacuation.pairs import Pair
from cli.evacuation.receivers import TargetReceivers
from cli.evacuation.survey import Share
from shared.errors import BuswayError, TargetRefused, TargetUnavailable
from shared.protocols import Output
from shared.resend.delivery import Attempt, PreparedMessage
from shared.resend.edits import resent_key
from shared.resend.evidence import Answer, Question, View, look
from shared.resend.ledger import ACCEPTED, SENT, Ledger
from shared.resend.letters import DESCRIPTION, REASON, Letter
from shared.resend.places import Destination, Place, Scene
from shared.resend.receiver import Receiver
from shared.resend.source import LockedMessage, SessionUnavailable

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
