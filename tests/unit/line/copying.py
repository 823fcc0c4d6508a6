"""A task that copies, in virtual time."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence

from shared.amqp.values import string
from shared.errors import TargetRefused
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.message.arrival import Origin
from shared.message.loop_prevention import LoopGuard
from shared.message.message import Message
from shared.message.ttl import Keep, TimeToLive
from shared.protocols import Editor, Outcome, Output
from tests.fakes import (
    JournalInMemory,
    OutputThatAccepts,
    SettlementInMemory,
    clock_at_delivery,
    sleep_by,
)

ORIGIN = Origin("west", "orders")


class Line:
    """A pipeline from west/orders to east/orders with rejects at west/rejected, in virtual time."""

    def __init__(
        self,
        output: Output | None = None,
        *,
        rejects: Output | None = None,
        has_rejects: bool = True,
        routes: Sequence[Route] | None = None,
        editors: Sequence[Editor] = (),
        time_to_live: TimeToLive | None = None,
        loop_guard: LoopGuard | None = None,
        has_locks: bool = False,
    ) -> None:
        """Locks of its source cannot be renewed."""
        self.output = output or OutputThatAccepts()
        self.rejects = rejects or OutputThatAccepts()
        self.journal = JournalInMemory()
        self.clock = clock_at_delivery()
        self.pauses: list[float] = []
        self.task = Task(
            "copy",
            ORIGIN,
            editors,
            Router(routes or [Route(Target(self.output, "east", "orders"))]),
            Target(self.rejects, "west", "rejected") if has_rejects else None,
            time_to_live or Keep(),
            loop_guard,
            settlement=SettlementInMemory(self.clock, error=TargetRefused("no service")) if has_locks else None,
        )
        self.pipeline = Pipeline(self.task, self.journal, self.clock, sleep_by(self.clock, self.pauses))

    def run(self, *batch: bytes) -> Counter[Outcome]:
        tokens = [bytes([number]) * 16 for number in range(len(batch))]
        return asyncio.run(self.pipeline.run(batch, None, tokens))

    def outcomes(self) -> list[Outcome]:
        return [record.outcome for record in self.journal.records]

    def rejected(self) -> list[Message]:
        assert isinstance(self.rejects, OutputThatAccepts)
        return self.rejects.messages("rejected")


class Editing:
    """An editor that calls a function."""

    name = "editing"

    def __init__(self, edit: Callable[[Message], Sequence[Message]]) -> None:
        self._edit = edit

    def edit(self, message: Message) -> Sequence[Message]:
        return self._edit(message)


def halves(message: Message) -> Sequence[Message]:
    """Split a message into two parts with ids of their own."""
    parts = [message.copy(), message.copy()]
    for number, part in enumerate(parts):
        part.message_id = string(f"half-{number}")
    return parts


def texts(message: Message) -> dict[str, object]:
    return {name: value.payload for name, value in message.application_properties()}
