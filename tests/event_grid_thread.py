"""The local Event Grid in a thread of its own, for tests that are not asynchronous."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Self

from cli.local_services.event_grid import EventGrid, Subscription

_SECONDS = 20


class RunningGrid:
    """Runs *grid*; the end of the context stops it."""

    def __init__(self, grid: EventGrid) -> None:
        self.grid = grid
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._run(self.grid.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._run(self.grid.__aexit__())
        finally:
            self._end()

    def subscribe(self, topic: str, subscription: Subscription) -> None:
        """Subscribe a webhook; raises TargetRefused if it does not agree."""
        self._run(self.grid.subscribe(topic, subscription))

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, object]) -> None:
        future: Future[object] = asyncio.run_coroutine_threadsafe(work, self._loop)
        future.result(_SECONDS)
