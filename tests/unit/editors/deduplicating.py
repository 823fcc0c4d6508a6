"""A deduplicate editor, and a pipeline that can be restarted with the same store."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from shared.clock import ManualClock
from shared.editors.deduplicate import Deduplicate
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.message.ttl import Keep
from shared.protocols import BatchEditor, EditedTogether, Editor, Outcome, Output
from tests import editing
from tests.fakes import (
    JournalInMemory,
    OutputThatAccepts,
    clock_at_delivery,
    sleep_by,
)
from tests.messages import delivered

ORIGIN = Origin("west", "orders")


class Line:
    """One instance of a task from west/orders to east/orders, with rejects, in virtual time."""

    def __init__(
        self,
        *editors: Editor | BatchEditor,
        output: Output | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        self.output = output or OutputThatAccepts()
        self.rejects = OutputThatAccepts()
        self.journal = JournalInMemory()
        self.clock = clock or clock_at_delivery()
        task = Task(
            "copy",
            ORIGIN,
            editors,
            Router([Route(Target(self.output, "east", "orders"))]),
            Target(self.rejects, "west", "rejected"),
            Keep(),
            None,
        )
        self.pipeline = Pipeline(task, self.journal, self.clock, sleep_by(self.clock))

    def run(self, *batch: tuple[int, str]) -> Counter[Outcome]:
        """Deliver messages by their sequence numbers and ids."""
        contents = [delivered(number, message_id=identity or None) for number, identity in batch]
        return asyncio.run(self.pipeline.run(contents))

    def numbers(self, outcome: Outcome) -> list[int]:
        """Return the sequence numbers of the messages that the journal records with an outcome."""
        return [record.arrival.sequence_number or 0 for record in self.journal.records if record.outcome is outcome]


def editor(clock: ManualClock | None = None, *, settings: dict[str, str] | None = None, **options: Any) -> Deduplicate:
    asked: dict[str, Any] = {"window": "PT1H", "store": "memory", **options}
    found: Deduplicate = editing.editor("deduplicate", settings, clock, **asked)
    return found


def asked(deduplicate: Deduplicate, messages: Sequence[Message]) -> Sequence[EditedTogether]:
    return editing.answers(deduplicate, *messages)
