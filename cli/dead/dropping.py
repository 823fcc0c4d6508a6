"""Removal of selected messages: each is received and completed; the others stay where they are."""

import time
from collections.abc import Callable, Mapping

from shared.errors import BuswayError, TargetRefused, TargetUnavailable
from shared.resend.peek import keys_in
from shared.resend.places import Place
from shared.resend.receiver import Receiver
from shared.resend.source import LockedMessage, SessionUnavailable

_AT_ONCE = 100
_RECEIVE_SECONDS = 1.0
_LOOK_AFTER_SECONDS = 5.0
_ATTEMPTS = 5


class Removal:
    """One run over the messages of one entity."""

    def __init__(
        self,
        place: Place,
        wanted: Mapping[str, str | None],
        settings: Mapping[str, str],
        patience: float,
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Remove the messages *wanted*: the session of each by its key; wait *patience* seconds for locked ones."""
        self.removed = 0
        self.gone = 0
        self.left: dict[str, str] = {}
        self.error: BuswayError | None = None
        self.is_stopped = False
        self._place = place
        self._todo = dict(wanted)
        self._settings = settings
        self._patience = patience
        self._progress = progress
        self._skipped: dict[str | None, LockedMessage] = {}

    def stop(self) -> None:
        """End the run after the step that is under way."""
        self.is_stopped = True

    async def run(self) -> None:
        """Remove the messages; errors are in `error`."""
        failures = 0
        while self._todo and not self.is_stopped and self.error is None:
            before = self.removed
            try:
                await self._receive()
            except TargetRefused as error:
                self.error = error
            except TargetUnavailable as error:
                failures = 1 if self.removed > before else failures + 1
                if failures >= _ATTEMPTS:
                    self.error = error
        for key in self._todo:
            self.left.setdefault(key, "not reached: the run ended before it")

    async def _receive(self) -> None:
        try:
            return await self._work(None)
        except TargetRefused as error:
            if "amqp:not-allowed" not in str(error):
                raise
        for session_id in dict.fromkeys(self._todo.values()):
            if self.is_stopped:
                return None
            try:
                await self._work(session_id)
            except SessionUnavailable as error:
                self._leave(session_id, str(error))
        return None

    async def _work(self, session_id: str | None) -> None:
        async with Receiver(self._place, self._settings, session_id) as receiver:
            try:
                await self._work_with(receiver, session_id)
            finally:
                skipped, self._skipped = list(self._skipped.values()), {}
                await receiver.give_back(skipped)

    async def _work_with(self, receiver: Receiver, session_id: str | None) -> None:
        moved = looked = time.monotonic()
        waiting = {key for key, each in self._todo.items() if session_id is None or each == session_id}
        while waiting and not self.is_stopped:
            for lost in await receiver.renew([*self._skipped.values()]):
                self._skipped.pop(lost.key, None)
            received = await receiver.receive(_AT_ONCE, _RECEIVE_SECONDS)
            wanted = [each for each in received if each.key in waiting]
            lost_keys = {each.key for each in await receiver.complete(wanted)}
            done = {each.key for each in wanted if each.key is not None and each.key not in lost_keys}
            for key in done:
                del self._todo[key]
            waiting -= done
            self.removed += len(done)
            self._progress(len(done))
            is_new = bool(done)
            for each in received:
                if each.key not in done and each.key not in waiting:
                    is_new = is_new or each.key not in self._skipped
                    each.forget()
                    self._skipped[each.key] = each
            if is_new:
                moved = time.monotonic()
            elif time.monotonic() - max(moved, looked) > _LOOK_AFTER_SECONDS:
                looked = time.monotonic()
                waiting &= await self._look()
                if time.monotonic() - moved > self._patience:
                    self._leave(session_id, "another receiver has locked it")
                    return

    def _leave(self, session_id: str | None, reason: str) -> None:
        for key in [key for key, each in self._todo.items() if session_id is None or each == session_id]:
            del self._todo[key]
            self.left[key] = reason

    async def _look(self) -> set[str]:
        """Return which messages are still to be removed, without those that another receiver has completed."""
        there = await keys_in(self._place, self._settings)
        for key in [key for key in self._todo if key not in there]:
            del self._todo[key]
            self.gone += 1
        return set(self._todo)
