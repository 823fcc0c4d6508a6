"""Answers that several viewers share."""

import asyncio
import time
from collections.abc import Awaitable, Callable


class Remembered[Key, Value]:
    """Answers repeated questions from memory for some seconds, so that many viewers cost as much as one."""

    def __init__(self, ask: Callable[[Key], Awaitable[Value]], seconds: float) -> None:
        """Ask with *ask*, again after *seconds*."""
        self._ask = ask
        self._seconds = seconds
        self._answers: dict[Key, tuple[float, asyncio.Task[Value]]] = {}

    async def __call__(self, key: Key) -> Value:
        """Return the answer for *key*; callers that come meanwhile wait for the same one."""
        now = time.monotonic()
        for old in [each for each, (until, _) in self._answers.items() if until <= now]:
            del self._answers[old]
        if key not in self._answers:
            self._answers[key] = now + self._seconds, asyncio.ensure_future(self._ask(key))
        answer = self._answers[key][1]
        try:
            return await asyncio.shield(answer)
        except Exception:
            self._answers.pop(key, None)
            raise

    def forget(self) -> None:
        """Ask again at the next question."""
        self._answers.clear()
