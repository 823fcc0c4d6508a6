"""A deduplicate editor, and a pipeline that can be restarted with the same store."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from shared.clock import ManualClock
from shared.editors.deduplicate import Deduplicate
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.protocols import EditedTogether, Outcome
from tests import editing
from tests.messages import delivered

ORIGIN = Origin("west", "orders")


class Line(editing.Line):
    def run(self, *batch: tuple[int, str]) -> Counter[Outcome]:
        """Deliver messages by their sequence numbers and ids."""
        contents = [delivered(number, message_id=identity or None) for number, identity in batch]
        return self.deliver(contents)

    def numbers(self, outcome: Outcome) -> list[int]:
        """Return the sequence numbers of the messages that the journal records with an outcome."""
        return [record.arrival.sequence_number or 0 for record in self.journal.records if record.outcome is outcome]


def editor(clock: ManualClock | None = None, *, settings: dict[str, str] | None = None, **options: Any) -> Deduplicate:
    asked: dict[str, Any] = {"window": "PT1H", "store": "memory", **options}
    found: Deduplicate = editing.editor("deduplicate", settings, clock, **asked)
    return found


def asked(deduplicate: Deduplicate, messages: Sequence[Message]) -> Sequence[EditedTogether]:
    return editing.answers(deduplicate, *messages)
