"""What each step of the line does with the messages of a dry run, noted by an observer around the steps."""

import copy
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import NamedTuple

from shared.line.batch import Batch
from shared.line.batch import Step as LineStep
from shared.line.editing import NOTHING_LEFT
from shared.line.item import Item
from shared.line.states import State
from shared.message.message import Message
from shared.protocols import Outcome

_EDITOR = "editors["
# What else the line does changes no message.
_SHOWN = frozenset(("restore", "stamps", "ttl", "routes", "fit"))


class Step(NamedTuple):
    """What one step of the line has done to a message, or to one of its parts."""

    name: str
    before: Message
    after: Sequence[Message]
    text: str | None = None
    """Where the message goes, or why nothing of it goes on."""


class _Before(NamedTuple):
    item: Item
    message: Message
    copy: Message


class Observer:
    """Puts itself around each step of a pipeline (`shared.line.batch.Watch`) and notes the changes."""

    def __init__(self) -> None:
        """Begin with no steps."""
        self.steps: dict[int, list[Step]] = {}
        """By the index of the message in its batch."""
        self.batch: Batch | None = None
        """The batch that was seen last."""

    def watch(self, steps: Sequence[LineStep]) -> list[LineStep]:
        """Return *steps* with the observer around each."""
        return [step._replace(run=partial(self._run, step)) for step in steps]

    def _run(self, step: LineStep, batch: Batch) -> Awaitable[None] | None:
        self.batch = batch
        if step.name not in _SHOWN and not step.name.startswith(_EDITOR):
            return step.run(batch)
        waiting = [*batch.waiting(State.RECEIVED), *batch.waiting(State.ROUTED)]
        before = [_Before(item, message, _copy(message)) for item, message in waiting]
        pending = step.run(batch)
        if pending is not None:
            return self._wait(pending, step.name, batch, before)
        self._note(step.name, batch, before)
        return None

    async def _wait(self, pending: Awaitable[None], name: str, batch: Batch, before: Sequence[_Before]) -> None:
        await pending
        self._note(name, batch, before)

    def _note(self, name: str, batch: Batch, before: Sequence[_Before]) -> None:
        known = {each.item for each in before}
        for each in before:
            text = _text(name, each.item)
            after = [] if text is not None and name.startswith(_EDITOR) else _after(each, batch, known)
            if text is None and each.item.state is State.FAILED:
                continue  # a step that is not an editor says nothing else of what it rejects
            self.steps.setdefault(each.item.index, []).append(Step(name, each.copy, after, text))


def _after(before: _Before, batch: Batch, known: set[Item]) -> list[Message]:
    """Return the messages that a step has left of one, the parts behind it that were not there before among them."""
    item = before.item
    # A step that encodes the message, or ends it, has changed it in place.
    after = [_copy(item.message or before.message)]
    parts = batch.parts[item.index]
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
            verb = "withheld" if item.joined.outcome is Outcome.FILTERED else "goes on"
            reason = "" if item.joined.reason is None else f": {item.joined.reason}"
            return f"{verb} with message {item.leader.arrival.sequence_number}{reason}"
        case _:
            return None


def _text_of_line(name: str, item: Item) -> str | None:
    if name == "ttl" and item.state is State.EXPIRED:
        return "its time to live is over"
    if name == "routes" and item.target is not None:
        return f"to {item.target}"
    return item.reason if name == "routes" and item.state is State.FILTERED else None


def _copy(message: Message) -> Message:
    """Return the message as it is now, whatever a later step does to its sections."""
    return Message(copy.copy(message.sections), message.arrival)
