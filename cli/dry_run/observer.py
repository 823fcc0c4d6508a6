"""Records what each step of the line does with the messages of a dry run."""

import copy
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import NamedTuple

from shared.line.batch import Batch
from shared.line.batch import Step as LineStep
from shared.line.editor_steps import NOTHING_LEFT
from shared.line.item import Item
from shared.line.states import State
from shared.message.message import Message
from shared.protocols import Outcome

_EDITOR = "editors["
# The other steps of the line change no message.
_SHOWN = frozenset(("open", "restore", "stamps", "ttl", "routes", "fit"))


class Step(NamedTuple):
    """The effect of one step of the line on a message, or on one of its parts."""

    name: str
    before: Message
    after: Sequence[Message]
    text: str | None = None
    """Where the message would be sent, or why it would not."""


class _Before(NamedTuple):
    item: Item
    message: Message
    copy: Message


class Observer:
    """Wraps each step of a pipeline (`shared.line.batch.Watch`) and records the changes."""

    def __init__(self) -> None:
        self.steps: dict[int, list[Step]] = {}
        """By the position of the message in its delivery."""
        self.batches: list[Batch] = []
        """A delivery that is too large passes the line as several."""

    def watch(self, steps: Sequence[LineStep]) -> list[LineStep]:
        """Return *steps*, each wrapped."""
        return [step._replace(run=partial(self._run, step)) for step in steps]

    def _run(self, step: LineStep, batch: Batch) -> Awaitable[None] | None:
        if not self.batches or self.batches[-1] is not batch:
            self.batches.append(batch)
            # What was postponed passes all steps again.
            last = batch.first - (not batch.skipped)
            self.steps = {place: steps for place, steps in self.steps.items() if place <= last}
        if step.name not in _SHOWN and not step.name.startswith(_EDITOR):
            return step.run(batch)
        waiting = [*batch.waiting(State.RECEIVED), *batch.waiting(State.ROUTED)]
        before = [_Before(item, message, _copy(message)) for item, message in waiting]
        pending = step.run(batch)
        if pending is None:
            self._note(step.name, batch, before)
            return None

        async def wait() -> None:
            await pending
            self._note(step.name, batch, before)

        return wait()

    def _note(self, name: str, batch: Batch, before: Sequence[_Before]) -> None:
        known = {each.item for each in before}
        for each in before:
            original = each.item.original
            if original.position >= batch.end or (name != "open" and original not in batch.parts):
                continue  # it is postponed
            text = _text(name, each.item)
            after = [] if text is not None and name.startswith(_EDITOR) else _after(name, each, batch, known)
            if text is None and each.item.state is State.FAILED:
                continue  # the journal record has the reason
            self.steps.setdefault(original.position, []).append(Step(name, each.copy, after, text))


def _after(name: str, before: _Before, batch: Batch, known: set[Item]) -> list[Message]:
    """Return the message after a step, followed by the new parts that the step has split off it."""
    item = before.item
    if name == "open":
        return [
            _copy(other.message)
            for other in batch.items
            if other.original.position == item.original.position and other.message is not None
        ]
    # A step that encodes or ends the message removes it from the item, after changing it in place.
    after = [_copy(item.message or before.message)]
    parts = batch.parts[item.original]
    if item in parts:
        for part in parts[parts.index(item) + 1 :]:
            if part in known or part.message is None:
                break
            after.append(_copy(part.message))
    return after


def _text(name: str, item: Item) -> str | None:
    if not name.startswith(_EDITOR):
        return _text_of_line(name, item)
    match item.state:
        case State.FILTERED:
            return "withheld" if item.reason == NOTHING_LEFT else f"withheld: {item.reason}"
        case State.FAILED:
            return f"rejected: {item.reason}"
        case State.JOINED if item.leader is not None and item.joined is not None:
            if item.rejection is not None:
                return f"rejected with message {item.leader.arrival.sequence_number}: {item.rejection.error}"
            verb = "withheld" if item.joined.outcome is Outcome.FILTERED else "continues"
            reason = "" if item.joined.reason is None else f": {item.joined.reason}"
            return f"{verb} with message {item.leader.arrival.sequence_number}{reason}"
        case _:
            return None


def _text_of_line(name: str, item: Item) -> str | None:
    if name == "ttl" and item.state is State.EXPIRED:
        return "expired: its time to live is over"
    if name == "routes" and len(item.copies) > 1:
        return f"to {', '.join(str(copy.only_for) for copy in item.copies)}"
    if name == "routes" and item.target is not None:
        binding = item.target.binding
        through = "" if binding is None else f" through an output binding: {binding.form.description}"
        return f"to {item.target}{through}"
    return item.reason if name == "routes" and item.state is State.FILTERED else None


def _copy(message: Message) -> Message:
    """Return a copy that later steps do not change."""
    return Message(copy.copy(message.sections), message.arrival)
