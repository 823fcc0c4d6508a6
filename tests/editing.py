"""Editors as a task names them, what they make of messages, and a line around them."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from shared.editors.options import FOLDER
from shared.errors import MessageRejected
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.message.arrival import Origin
from shared.message.message import Message
from shared.message.ttl import Keep
from shared.protocols import BatchEditor, Outcome
from shared.tasks.steps import STEPS
from tests.fakes import JournalInMemory, OutputThatAccepts, clock_at_delivery, sleep_by, task_facts


class Line:
    """One instance of a task from west/orders to east/orders with *editors* and rejects, in virtual time."""

    def __init__(self, *editors: Any, output: Any = None, clock: Any = None) -> None:
        self.output = output or OutputThatAccepts()
        self.rejects = OutputThatAccepts()
        self.journal = JournalInMemory()
        self.clock = clock or clock_at_delivery()
        router, rejects = (
            Router([Route(Target(self.output, "east", "orders"))]),
            Target(self.rejects, "west", "rejected"),
        )
        task = Task("copy", Origin("west", "orders"), editors, router, rejects, Keep(), None)
        self.pipeline = Pipeline(task, self.journal, self.clock, sleep_by(self.clock))

    def deliver(self, contents: Sequence[bytes]) -> Counter[Outcome]:
        return asyncio.run(self.pipeline.run(contents))


def editor(verb: str, app: Any = None, clock: Any = None, *, folder: Any = None, **options: Any) -> Any:
    """Return an editor with *options*, app settings, a clock, and files in a configuration *folder*."""
    step = STEPS[verb].model_validate({verb: options}, context={FOLDER: folder})
    return step.editor(task_facts(app, clock))


def problem(verb: str, folder: Path | None = None, **options: Any) -> str:
    """Return why a task with these *options* does not load."""
    with pytest.raises(ValidationError) as caught:
        STEPS[verb].model_validate({verb: options}, context={FOLDER: folder})
    return str(caught.value)


def answers(each: Any, *messages: Message) -> Sequence[Any]:
    """Return what an editor makes of each message."""
    if isinstance(each, BatchEditor):
        return asyncio.run(each.edit_batch(messages, timeout_seconds=20))
    return [_answer(each, message) for message in messages]


def _answer(each: Any, message: Message) -> Any:
    try:
        return each.edit(message)
    except MessageRejected as error:
        return error


def edited(each: Any, message: Message) -> Any:
    """Return the one message that an editor makes of another; raises its MessageRejected."""
    (answer,) = answers(each, message)
    if isinstance(answer, MessageRejected):
        raise answer
    (made,) = answer
    assert isinstance(made, Message), answer
    return made


def rejection(each: Any, message: Message) -> tuple[str, str]:
    """Return the reason and the description with which an editor rejects a message."""
    with pytest.raises(MessageRejected) as caught:
        edited(each, message)
    return caught.value.reason, caught.value.description
