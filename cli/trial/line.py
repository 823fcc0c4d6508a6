"""
A task's line with an observer at every step: the product's own pipeline, on outputs, a journal and locks that keep
nothing anywhere.

What is seen is what the line does. Only editors that write to a store have to know that it is no more than a trial:
`shared.editors.options.TaskFacts.rehearsal`.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from shared.clock import Clock
from shared.errors import BuswayError, MessageRejected
from shared.journal.in_memory import MemoryJournal
from shared.line.pipeline import Pipeline
from shared.line.routing import Router, Target
from shared.line.task import Task
from shared.message.message import Arrival, Message
from shared.message.ttl import Keep, TimeToLive
from shared.protocols import (
    BatchEditor,
    EditedTogether,
    Editor,
    Joined,
    Outcome,
    Outgoing,
    Record,
    Withheld,
)

# A store that is away is asked again once or twice; a person is waiting.
_HOLD = timedelta(seconds=5)
_LOCK_TOKEN_BYTES = 16
_LOCKED_FOR = timedelta(hours=1)


class Step(NamedTuple):
    """What one step of the line has made of a message, or of one of the parts that it had become."""

    name: str
    before: Message
    after: Sequence[Message]
    told: str | None = None
    """Why nothing, or another message, is left of it."""


@dataclass
class Trial:
    """What would become of a message."""

    content: bytes
    arrival: Arrival | None
    """None where it cannot be read."""
    partition: str | None
    steps: list[Step] = field(default_factory=list)
    ends: list[Record] = field(default_factory=list)
    """One for each part that it would become; none where the task takes from other partitions only."""


class Observer:
    """Notes what each step does; the messages of a trial are told apart by their arrivals."""

    def __init__(self) -> None:
        """See nothing yet."""
        self.steps: dict[Arrival, list[Step]] = {}
        # The messages themselves are kept: an id of an object is its own for as long as it lives.
        self._last: dict[int, tuple[Message, Message]] = {}

    def before(self, message: Message) -> Message:
        """Return the message as the step before has left it."""
        known = self._last.get(id(message))
        return copied(message) if known is None else known[1]

    def note(self, name: str, before: Message, after: Sequence[Message] = (), told: str | None = None) -> None:
        """Note what *name* has made of a message."""
        copies = [copied(each) for each in after]
        for each, kept in zip(after, copies, strict=True):
            self._last[id(each)] = each, kept
        self.steps.setdefault(before.arrival, []).append(Step(name, before, copies, told))


def copied(message: Message) -> Message:
    """Return the message as it is now, whatever an editor does to its sections later."""
    return Message(copy.copy(message.sections), message.arrival)


class _ObservedEditor:
    """An editor of messages one by one."""

    def __init__(self, step: str, editor: Editor, observer: Observer) -> None:
        self.name = editor.name
        self._step = step
        self._editor = editor
        self._observer = observer

    def edit(self, message: Message) -> Sequence[Message] | Withheld:
        before = copied(message)
        try:
            result = self._editor.edit(message)
        except MessageRejected as error:
            self._observer.note(self._step, before, told=f"rejected: {error}")
            raise
        _note(self._observer, self._step, before, result)
        return result


class _ObservedBatchEditor:
    """An editor of a batch, which is never told what became of it: nothing did."""

    def __init__(self, step: str, editor: BatchEditor, observer: Observer) -> None:
        self.name = editor.name
        self.joins = editor.joins
        self._step = step
        self._editor = editor
        self._observer = observer

    async def edit_batch(self, messages: Sequence[Message], *, timeout_seconds: float) -> Sequence[EditedTogether]:
        before = [copied(message) for message in messages]
        results = await self._editor.edit_batch(messages, timeout_seconds=timeout_seconds)
        for each, result in zip(before, results, strict=True):
            if isinstance(result, Joined):
                leader = before[result.leader].arrival.sequence_number
                what = "withheld" if result.outcome is Outcome.FILTERED else "goes on"
                reason = "" if result.reason is None else f": {result.reason}"
                self._observer.note(self._step, each, told=f"{what} with message {leader}{reason}")
            else:
                _note(self._observer, self._step, each, result)
        return results

    async def settled(self, outcomes: Sequence[tuple[Arrival, Outcome]], *, timeout_seconds: float) -> None:
        pass


def _note(
    observer: Observer, step: str, before: Message, result: Sequence[Message] | Withheld | MessageRejected
) -> None:
    if isinstance(result, MessageRejected):
        observer.note(step, before, told=f"rejected: {result}")
    elif isinstance(result, Withheld):
        observer.note(step, before, told=f"withheld: {result.reason}")
    elif result:
        observer.note(step, before, result)
    else:
        observer.note(step, before, told="withheld")


class _ObservedLife(Keep):
    """The time to live of a task, and before it the stamps, which have no other place to be seen at."""

    def __init__(self, life: TimeToLive, observer: Observer) -> None:
        self._life = life
        self._observer = observer

    def expires(self, message: Message, now: datetime) -> bool:
        self._observer.note("stamps", self._observer.before(message), [message])
        before = copied(message)
        is_over = self._life.expires(message, now)
        self._observer.note("ttl", before, [message], "its life is over" if is_over else None)
        return is_over


class _ObservedRouter(Router):
    """The routes of a task, and what their targets need changed."""

    def __init__(self, router: Router, observer: Observer) -> None:
        super().__init__(())
        self._router = router
        self._observer = observer
        self._fits: dict[Target, Callable[[Message], None]] = {}

    def route(self, message: Message) -> Target | None:
        before = copied(message)
        target = self._router.route(message)
        self._observer.note("routes", before, [message], "no route takes it" if target is None else f"to {target}")
        # One fit for each target: two that are equal stay equal.
        return None if target is None else target._replace(fit=self._fits.setdefault(target, self._fit(target)))

    def _fit(self, target: Target) -> Callable[[Message], None]:
        def fit(message: Message) -> None:
            before = self._observer.before(message)
            if target.fit is not None:
                target.fit(message)
            self._observer.note("fit", before, [message])

        return fit


def _restoring(restore: Callable[[Message], None] | None, observer: Observer) -> Callable[[Message], None]:
    """Return what sees a message first, whether there is something to restore or not."""

    def restored(message: Message) -> None:
        before = copied(message)
        if restore is not None:
            restore(message)
        observer.note("restore", before, [message])

    return restored


def observed(task: Task, verbs: Sequence[str], clock: Clock, observer: Observer) -> Task:
    """Return *task*, of which *observer* sees every step; *verbs* are those of its editors."""
    editors: list[Editor | BatchEditor] = []
    for index, (verb, editor) in enumerate(zip(verbs, task.editors, strict=True)):
        step = f"editors[{index}].{verb}"
        if isinstance(editor, BatchEditor):
            editors.append(_ObservedBatchEditor(step, editor, observer))
        else:
            editors.append(_ObservedEditor(step, editor, observer))
    return replace(
        task,
        editors=editors,
        router=_ObservedRouter(task.router, observer),
        time_to_live=_ObservedLife(task.time_to_live, observer),
        restore=_restoring(task.restore, observer),
        locks=_NoLocks(clock),
        hold=_HOLD,
        rejects_in_a_row=None,
    )


async def tried(
    task: Task, verbs: Sequence[str], batches: Sequence[tuple[str | None, Sequence[bytes]]], clock: Clock
) -> list[Trial]:
    """
    Return what would become of the messages of *batches*, each from one partition where the source has any.

    The outputs of *task* keep nothing. Raises TargetUnavailable and TargetRefused where what an editor asks does not
    answer.
    """
    trials = []
    for partition, contents in batches:
        trials += await _of_batch(task, verbs, partition, contents, clock)
    return trials


async def _of_batch(
    task: Task, verbs: Sequence[str], partition: str | None, contents: Sequence[bytes], clock: Clock
) -> list[Trial]:
    observer, journal = Observer(), MemoryJournal()
    pipeline = Pipeline(observed(task, verbs, clock, observer), journal, clock)
    tokens = [number.to_bytes(_LOCK_TOKEN_BYTES) for number in range(len(contents))] if partition is None else []
    await pipeline.run(contents, partition, tokens)
    origin = task.origin if partition is None else task.origin._replace(partition=partition)
    trials = []
    ends = iter(_by_message(journal.records))
    for content in contents:
        try:
            arrival = Message.received(content, origin).arrival
        except MessageRejected:
            arrival = None
        steps = [] if arrival is None else observer.steps.get(arrival, [])
        trials.append(Trial(content, arrival, partition, steps, next(ends, [])))
    return trials


def _by_message(records: Sequence[Record]) -> Iterator[list[Record]]:
    """Yield the records of each message; those of its parts follow one another."""
    gathered: list[Record] = []
    for record in records:
        if gathered and not record.part:
            yield gathered
            gathered = []
        gathered.append(record)
    if gathered:
        yield gathered


class NoOutput:
    """Accepts everything and sends nothing."""

    async def send(
        self,
        entity: str,  # noqa: ARG002 - as the protocol says
        messages: Sequence[Outgoing],
        *,
        timeout_seconds: float,  # noqa: ARG002 - as the protocol says
    ) -> list[BuswayError | None]:
        """Accept *messages*."""
        return [None] * len(messages)

    async def close(self) -> None:
        """Close nothing."""


class _NoLocks:
    """Locks that never end, on messages that stay where they are."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def renew(self, tokens: Sequence[bytes], session_id: str | None, *, timeout_seconds: float) -> int:  # noqa: ARG002 - as the protocol says
        return round((self._clock.now() + _LOCKED_FOR).timestamp() * 1000)

    async def dead_letter(
        self, token: bytes, session_id: str | None, reason: str, description: str, *, timeout_seconds: float
    ) -> None:
        pass
