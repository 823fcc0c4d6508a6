"""A line with a journal and a watch for losses, which looks five times a second with a grace to match."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import pytest

from shared.assembly.losses import loss_watches
from shared.errors import BuswayError
from shared.losses import numbers
from shared.losses.report import Found
from shared.tasks.files import load
from tests.azurite import blob_account
from tests.faults.line import Line

_SECONDS = 0.2
_LOOKS_AFTERWARDS = 6


@contextmanager
def short_grace() -> Iterator[None]:
    """Make losses of numbers that are missing for 0.4 s, instead of two minutes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(numbers, "PATIENCE", round(_SECONDS * 1000))
        patch.setattr(numbers, "GRACE", round(2 * _SECONDS * 1000))
        yield


class WatchedLine(Line):
    """One route whose task keeps a journal; `found` has what the watch has reported."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Prepare as `Line`."""
        super().__init__(*arguments, **options)
        self.found: list[Found] = []
        self.looks = 0
        self._storage = ""
        self._is_over = threading.Event()
        self._watching = threading.Thread(target=lambda: asyncio.run(self._watch()))
        (self._folder / "journal.yaml").write_text("blob: {setting: JOURNAL}\n")

    def __enter__(self) -> Self:
        """Start the broker, the storage and the watch."""
        super().__enter__()
        self._storage = blob_account()
        self._watching.start()
        self.wait_until(lambda: self.looks, "looked")
        return self

    def __exit__(self, *error: object) -> None:
        """Stop all."""
        self._is_over.set()
        self._watching.join()
        super().__exit__(*error)

    def wait_for_looks(self) -> None:
        """Wait until the watch has had the time to report what it will."""
        looks = self.looks + _LOOKS_AFTERWARDS
        self.wait_until(lambda: self.looks >= looks, "looked several times")

    def _settings(self) -> dict[str, str]:
        return super()._settings() | {"JOURNAL": self._storage, "BUSWAY_LOSS_WATCH": "off"}

    async def _watch(self) -> None:
        opened = loss_watches(load(self._folder), self._settings() | {"BUSWAY_LOSS_WATCH": "on"})
        for watch in opened.watches:
            # The watch begins a minute ago, so that what is sent now was enqueued after that.
            await watch.look(datetime.now(UTC) - timedelta(minutes=1))
        self.looks = 1
        while not self._is_over.is_set():
            await asyncio.sleep(_SECONDS)
            for watch in opened.watches:
                try:
                    self.found += await watch.look(datetime.now(UTC))
                except BuswayError:
                    continue  # the scenario's fault also keeps the watch from the source
            self.looks += 1
        await opened.close()
