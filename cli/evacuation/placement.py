"""
Messages that are set aside at the target as they were at the source: dead letters and deferred messages.

Nobody can send to a dead-letter queue, or send a deferred message. Each is sent to the entity, received there, and
dead-lettered or deferred. If another receiver takes a copy in between, the run ends with the first one.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence

from cli.evacuation.move import MoveDelivery
from cli.evacuation.pairs import Pair
from cli.evacuation.receivers import TargetReceivers
from cli.evacuation.survey import Share
from shared.errors import BuswayError, TargetRefused, TargetUnavailable
from shared.protocols import Output
from shared.resend.delivery import Attempt, PreparedMessage
from shared.resend.edits import resent_key
from shared.resend.evidence import Answer, Question, may_look, never_entered
from shared.resend.ledger import ACCEPTED, SENT, Ledger
from shared.resend.letters import DESCRIPTION, REASON, Letter
from shared.resend.numbering import run_of_probe
from shared.resend.peek import peek
from shared.resend.places import Scene, place_of
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
        *,
        outputs: Mapping[str, Output],
        targets: TargetReceivers,
        patience: float,
    ) -> None:
        """Receive the copies through *targets*; what another receiver has locked is waited for, *patience* seconds."""
        super().__init__(pair, share, scene, ledger, outputs)
        self._targets = targets
        self._patience = patience

    async def send(self, messages: Sequence[PreparedMessage]) -> Attempt:
        """Send *messages*, and set them aside; those of one session stay in their order."""
        result = Attempt()
        groups: dict[str | None, list[PreparedMessage]] = {}
        for message in messages:
            groups.setdefault(message.outgoing.session_id if self.pair.requires_session else None, []).append(message)
        for session_id, some in groups.items():
            if result.error is None:
                await self._send_group(session_id, some, result)
            else:
                result.refused += [message.key for message in some]
        return result

    async def _send_group(self, session_id: str | None, messages: Sequence[PreparedMessage], result: Attempt) -> None:
        try:
            receiver = await self._targets.of(session_id)
        except SessionUnavailable as error:
            result.rejected |= dict.fromkeys((message.key for message in messages), str(error))
            return
        sent = await super().send(messages)
        result.rejected |= sent.rejected
        result.refused += sent.refused
        result.unclear += sent.unclear
        result.error = sent.error
        placed = await self._place(receiver, sent.sent)
        await self.ledger.note(SENT, placed, str(self.pair.destination))
        result.sent += [key for key in sent.sent if key in placed]
        taken = [key for key in sent.sent if key not in placed]
        if taken:
            text = "another receiver took it, or it was dropped as a duplicate; stop the receivers there"
            raise TargetRefused(f"{self.pair.target} accepted a message, and it was not there to be set aside: {text}")

    async def answers(self, to: str, questions: Sequence[Question], stopping: asyncio.Event) -> Mapping[str, Answer]:  # noqa: ARG002 - it is always the target
        """Look for copies that are set aside, and set aside those that are not yet."""
        if not await may_look((question.entry for question in questions), self.ledger, stopping):
            return {}
        placed, waiting, numbers, probes = await self._copies()
        wanted = {question.key for question in questions}
        locked: set[str] = set()
        for session_id, keys in waiting.items():
            mine = keys & wanted
            if mine:
                try:
                    receiver = await self._targets.of(session_id)
                except SessionUnavailable:
                    locked |= mine
                    continue
                found = await self._place(receiver, mine, self._patience, stopping)
                placed |= found
                locked |= mine - found.keys()
        if locked:
            # Another receiver had locked it, and may have deferred or completed it meanwhile.
            placed |= (await self._copies())[0]
        answers = {
            question.key: Answer.SENT
            if question.key in placed
            else Answer.LOCKED
            if question.key in locked
            else Answer.UNCLEAR
            for question in questions
        }
        unclear = [
            question
            for question in questions
            if answers[question.key] is Answer.UNCLEAR and question.entry.state != ACCEPTED
        ]
        entity = place_of(self.pair.destination, self._scene.configuration)
        if unclear and entity is not None and not self.pair.target_is_partitioned:
            for question in await never_entered(
                unclear, entity, self.settings, numbers, probes, copies=placed, ledger=self.ledger
            ):
                answers[question.key] = Answer.NOT_SENT
        return answers

    async def _copies(self) -> tuple[dict[str, int | None], dict[str | None, set[str]], set[int], dict[int, int]]:
        """
        Return the keys of the copies that are set aside, with their numbers, and by session of those that wait.

        Last are the numbers of all messages of the entity that they were sent to, if that can be peeked, and of probes.
        """
        numbers: set[int] = set()
        probes: dict[int, int] = {}
        placed: dict[str, int | None] = {}
        waiting: dict[str | None, set[str]] = {}
        target = self.pair.target
        for place in (target, target.dead_letters()) if self.share is Share.DEAD else (target,):
            async with contextlib.aclosing(peek(place, self.settings)) as letters:
                async for letter, message in letters:
                    if place.entity == self.pair.destination.entity:
                        run = run_of_probe(letter, self.ledger)
                        if run is not None:
                            probes[letter.number or 0] = run
                            continue
                        numbers.add(letter.number or 0)
                    key = resent_key(letter, self.place, self.ledger)
                    if key is None:
                        continue
                    if place.is_dead_letter_queue or not message.is_active:
                        placed[key] = letter.number
                    else:
                        session_id = letter.session_id if self.pair.requires_session else None
                        waiting.setdefault(session_id, set()).add(key)
        return placed, waiting, numbers, probes

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
                    key = None if message.letter is None else resent_key(message.letter, self.place, self.ledger)
                    if key in waiting and key is not None and message.letter is not None:
                        mine[key] = message, message.letter
                    else:
                        others.append(message)
                try:
                    await self._note_numbers({key: letter.number for key, (_, letter) in mine.items()})
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

    async def _note_numbers(self, copies: Mapping[str, int | None]) -> None:
        """Record the numbers of copies, which leave the entity next: without them it looks as if somebody took them."""
        numbers = [number for number in copies.values() if number is not None]
        to = str(self.pair.destination)
        await self.ledger.note(ACCEPTED, copies, to, numbers=numbers if len(numbers) == len(copies) else ())

    async def _set_aside(self, receiver: Receiver, copies: Iterable[tuple[LockedMessage, Letter]]) -> None:
        if self.share is Share.DEFERRED:
            held = [message for message, _ in copies]
            if held:
                await receiver.defer(held)
            return
        by_reason: dict[tuple[str | None, str | None], list[LockedMessage]] = {}
        for message, letter in copies:
            by_reason.setdefault((letter.text(REASON), letter.text(DESCRIPTION)), []).append(message)
        for (reason, description), held in by_reason.items():
            await receiver.dead_letter(held, reason, description)
