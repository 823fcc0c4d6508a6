"""Sending of messages from a file of `busway dead export`, with the ledger of the entity that they came from."""

import asyncio
import base64
import binascii
from collections.abc import Callable, Iterator
from pathlib import Path

from cli.dead.exporting import WHERE, exported_objects
from shared.errors import BuswayError, ConfigError, Problem
from shared.resend.delivery import Delivery, PreparedMessage
from shared.resend.evidence import Answer, Question, by_destination
from shared.resend.ledger import COMPLETED, REFUSED, SENDING, SENT
from shared.resend.letters import Letter
from shared.resend.options import Unclear
from shared.resend.places import Scene
from shared.resend.run import AT_ONCE, Result
from shared.resend.selection import Selection


def letters_in(file: Path, scene: Scene, selection: Selection) -> Iterator[Letter]:
    """Yield the selected messages of the entity in *file*, in its order; raises ConfigError."""
    wanted = str(scene.place).lower()
    for number, content in exported_objects(file):
        where = content[WHERE]
        if str(where.get("entity")).lower() != wanted:
            continue
        try:
            letter = Letter(base64.b64decode(content["raw"], validate=True), scene.place.origin)
        except (binascii.Error, TypeError, ValueError) as error:
            raise ConfigError([Problem(f"{file}: line {number}", "raw is not Base64")]) from error
        if letter.key is not None and selection.takes(letter):
            yield letter
        if selection.is_complete:
            return


class FileResend:
    """One run over the messages of a file; they stay in the file, and in their entity if they are still there."""

    def __init__(
        self, scene: Scene, delivery: Delivery, unclear: Unclear, progress: Callable[[int], None] = lambda _: None
    ) -> None:
        """Send with the ledger of *delivery*: what it has as sent is not sent again."""
        self.result = Result()
        self._scene = scene
        self._delivery = delivery
        self._ledger = delivery.ledger
        self._unclear = unclear
        self._progress = progress
        self._stopping = asyncio.Event()
        self._blocked: set[str] = set()

    def stop(self) -> None:
        """End the run after the step that is under way."""
        self.result.is_stopped = True
        self._stopping.set()

    async def run(self, letters: Callable[[], Iterator[Letter]]) -> Result:
        """Send what *letters* yields, in its order; errors are in the result, the rest is for the next run."""
        await self._resolve(letters())
        batch: list[PreparedMessage] = []
        for letter in letters():
            if self._stopping.is_set() or self.result.error is not None:
                break
            ready = self._ready(letter)
            if ready is None:
                continue
            if batch and (ready.destination != batch[0].destination or len(batch) == AT_ONCE):
                await self._send(batch)
                batch = []
            batch.append(ready)
        if batch and not self._stopping.is_set() and self.result.error is None:
            await self._send(batch)
        return self.result

    def _ready(self, letter: Letter) -> PreparedMessage | None:
        """Return *letter* as it is to be sent, None if it was sent before or is left."""
        key = letter.key or ""
        state = self._ledger.state(key)
        if state in (SENT, COMPLETED):
            self.result.sent_before += 1
            return None
        if state == SENDING or letter.session_id in self._blocked:
            behind = "held back: it is behind an unclear message of its session"
            unclear = "unclear: an interrupted run may have sent it"
            self.result.left[key] = unclear if state == SENDING else behind
            if letter.session_id is not None:
                self._blocked.add(letter.session_id)
            return None
        ready = self._delivery.prepare(key, letter)
        if isinstance(ready, str):
            self.result.left[key] = ready
            return None
        return ready

    async def _resolve(self, letters: Iterator[Letter]) -> None:
        """Find out what happened to messages whose send was interrupted."""
        questions = [
            Question(letter.key, entry, letter.session_id, self._ledger.sent_before(entry))
            for letter in letters
            if letter.key is not None and (entry := self._ledger.entries.get(letter.key)) and entry.state == SENDING
        ]
        for to, some in by_destination(questions).items():
            try:
                found = await self._delivery.answers(to, some, self._stopping)
            except BuswayError:
                # Without a look at the target nothing is known about them.
                found = dict.fromkeys((each.key for each in some), Answer.UNCLEAR)
            unclear = [key for key, answer in found.items() if answer is Answer.UNCLEAR]
            sent = [key for key, answer in found.items() if answer is Answer.SENT]
            refused = [key for key, answer in found.items() if answer is Answer.NOT_SENT]
            sent += unclear if self._unclear is Unclear.COMPLETE else []
            refused += unclear if self._unclear is Unclear.SEND else []
            await self._ledger.note(SENT, sent, to)
            await self._ledger.note(REFUSED, refused, to)

    async def _send(self, batch: list[PreparedMessage]) -> None:
        delivered = await self._delivery.send(batch)
        self.result.sent += len(delivered.sent)
        self._progress(len(delivered.sent))
        for key, reason in delivered.rejected.items():
            self.result.left[key] = reason
        self.result.error = delivered.error
        not_sent = "not sent: the run ended before it"
        self.result.left |= dict.fromkeys([*delivered.refused, *delivered.unclear], not_sent)
