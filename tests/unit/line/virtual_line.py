"""The pipeline of a task with locks, in virtual time."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from shared.errors import BuswayError
from shared.line.accepted_sends import AcceptedSends
from shared.line.pause import Pause, ReadOrder
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.shutdown import Shutdown
from shared.line.task import Task
from shared.message.arrival import Origin
from shared.message.ttl import Keep, TimeToLive
from shared.protocols import BatchEditor, Outcome, Output
from shared.rules import parse_action, parse_filter
from tests.fakes import (
    JournalInMemory,
    SessionInMemory,
    SettlementInMemory,
    clock_at_delivery,
)
from tests.messages import LOCK_MILLISECONDS, delivered

LOCK = LOCK_MILLISECONDS / 1000
YEAR_10000 = 253_402_300_800_000


def token(number: int) -> bytes:
    return bytes([number]) * 16


class Line[AnOutput: Output]:
    def __init__(
        self,
        output: AnOutput,
        *,
        rejects: Output | None = None,
        has_locks: bool = True,
        error: BuswayError | None = None,
        accepted: AcceptedSends | None = None,
        read_order: ReadOrder | None = None,
        other: Output | None = None,
        life: TimeToLive | None = None,
        action: str | None = None,
        editors: Sequence[BatchEditor] = (),
        **options: Any,
    ) -> None:
        """Send to *output*; what has an even number to *other*, if there is one."""
        self.output = output
        self.clock = clock_at_delivery()
        self.locks = SettlementInMemory(self.clock, error=error)
        self.session = SessionInMemory(self.locks)
        self.at: dict[Any, Any] = {}
        self.shutdown = Shutdown()
        self.journal = JournalInMemory()
        routes = [Route(Target(output, "east", "orders"), None, None if action is None else parse_action(action))]
        if other is not None:
            routes.insert(0, Route(Target(other, "north", "orders"), parse_filter("sys.MessageId IN ('m-2', 'm-4')")))
        self.task = Task(
            "copy",
            Origin("west", "orders"),
            [*editors],
            Router(routes),
            None if rejects is None else Target(rejects, "west", "rejected"),
            life or Keep(),
            None,
            settlement=self.locks if has_locks else None,
            **options,
        )
        self.pipeline = Pipeline(
            self.task,
            self.journal,
            self.clock,
            self._sleep,
            shutdown=self.shutdown,
            accepted=accepted,
            pause=None if read_order is None else Pause("copy", read_order, self.clock),
        )

    def deliver(self, *numbers: int, session: SessionInMemory | None = None, **options: Any) -> Mapping[Outcome, int]:
        """Deliver a batch, with locks that begin now; those of a *session* say the year 10000."""
        self.locks.begin()
        until = round((self.clock.now().timestamp() + LOCK) * 1000) if session is None else YEAR_10000
        batch = [delivered(number, locked_until=until, **options) for number in numbers]
        tokens = [token(number) for number in numbers]
        return asyncio.run(self.pipeline.run(batch, None, tokens, session))

    def outcomes(self) -> list[Outcome]:
        return [record.outcome for record in self.journal.records]

    async def _sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.clock.advance(seconds)
        for when in [each for each in self.at if each <= self.clock.monotonic()]:
            self.at.pop(when)()
        await asyncio.sleep(0)
