"""The store of the ledger of a resend: it may refuse a line, keep a part of it, or write it and say that it did not."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from shared.errors import BuswayError, TargetRefused, TargetUnavailable
from tests.simulation.faults import Effect, Operation
from tests.simulation.network import Network
from tests.simulation.process import Process

_SLOW_SECONDS = 20.0


class Lines:
    """What all runs have written, whole lines and parts of lines."""

    def __init__(self, failure: Callable[[str], BuswayError]) -> None:
        """Begin with nothing; *failure* is what a store of this kind raises."""
        self.text = ""
        self.failure = failure


def failure_of(number: float) -> Callable[[str], BuswayError]:
    """Return what a file or a blob raises that cannot be written."""
    return TargetRefused if number < 0.5 else TargetUnavailable


class SimulatedLedgerStore:
    """The lines as one process has them open; it is a `LedgerStore`."""

    where = "ledger"

    def __init__(self, network: Network, owner: Process, lines: Lines) -> None:
        """Append to *lines*, which outlive the process."""
        self._network = network
        self._owner = owner
        self._lines = lines

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Iterable[str]]:
        """Give the lines."""
        await asyncio.sleep(self._network.delay())
        yield self._lines.text.split("\n")

    async def append(self, line: str) -> None:
        """Append a line, or raise what the store raises."""
        network = self._network
        effect = network.faults.strike(Operation.RECORD, network.loop.time(), self.where)
        await asyncio.sleep(network.delay() if effect is not Effect.SLOW else _SLOW_SECONDS)
        if effect is Effect.REFUSED:
            raise self._lines.failure("the ledger cannot be written")
        if effect is Effect.KILL_BEFORE:
            self._owner.kill()
        if self._owner.is_dead:
            return
        # One that was left incomplete is ended first, as in a file (`cli.files.SyncedLines`).
        self._lines.text += "\n" if self._lines.text and not self._lines.text.endswith("\n") else ""
        self._lines.text += line[: len(line) // 2] if effect in {Effect.CUT_OFF, Effect.KILL_WITHIN} else line
        if effect in {Effect.KILL_AFTER, Effect.KILL_WITHIN}:
            self._owner.kill()
        await asyncio.sleep(network.delay())
        if effect in {Effect.TWICE, Effect.CUT_OFF}:
            raise self._lines.failure("the ledger did not answer")
