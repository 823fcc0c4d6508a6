"""
The editors of a task as steps of the line.

1. An `Editor` gets one message at a time. A `BatchEditor` gets all messages of the batch in one call.
2. The result of an editor replaces the message. If nothing is left of a message, it is filtered.
3. A message that takes an editor too long is rejected (`shared.time_limit`). After a message that takes long, other
   tasks run.
4. An unexpected exception of an editor rejects its message. A `BatchEditor` that raises one is called again with each
   half of its messages, until the message at which it fails is found: that message is rejected, and the others
   continue.
5. A joined message goes to no later editor.
6. Before the first editor that joins messages, or else after all editors, each part gets its number, and the parts that
   an earlier delivery has sent are removed.
7. If the messages of a batch become too large together, the last ones are postponed. If the results for one message do,
   that message is rejected.
"""

from collections.abc import Awaitable, Iterator, Sequence
from functools import partial
from pathlib import Path

from shared.errors import BuswayError, MessageRejected
from shared.line.accepted_sends import AcceptedSends
from shared.line.batch import Batch, Room, Step, then
from shared.line.failure import Failure
from shared.line.item import Item
from shared.line.recall import Recall
from shared.line.rejection import PART, Part
from shared.line.states import Stage, State
from shared.line.task import Task
from shared.message.message import Message
from shared.protocols import BatchEditor, EditedTogether, Editor, Joined, Outcome, Postponed, Withheld
from shared.time_limit import TimeLimit

NOTHING_LEFT = "withheld by an editor"
"""The reason for a message that an editor has withheld without giving a reason."""


class EditorSteps:
    """The steps of one task's editors."""

    def __init__(self, task: Task, accepted: AcceptedSends, failure: Failure, recall: Recall) -> None:
        """Recognize in *accepted* the messages that an earlier delivery has sent, after a *recall*."""
        self._time_limit = TimeLimit(task.edit_seconds)
        self._batch_bytes = task.batch_bytes
        self._task = task.name
        self._editors = task.editors
        self._accepted = accepted
        self._failure = failure
        self._recall = recall

    def steps(self) -> Iterator[Step]:
        """Yield a step for each editor, and one that numbers the parts."""
        is_numbered = False
        for index, editor in enumerate(self._editors):
            if isinstance(editor, BatchEditor):
                if editor.joins and not is_numbered:
                    is_numbered = True
                    yield Step("parts", Stage.EDITED, self._number)
                run = partial(self._edit_together, editor)
                yield Step(f"editors[{index}].{editor.name}", Stage.EDITED, run)
            else:
                yield Step(f"editors[{index}].{editor.name}", Stage.EDITED, partial(self._edit, editor))
        if not is_numbered:
            yield Step("parts", Stage.EDITED, self._number)

    def _edit(self, editor: Editor, batch: Batch) -> Awaitable[None] | None:
        """Give each message to *editor*."""
        # Of a message of which another part has failed, no other part is edited.
        waiting = (
            (item, message)
            for item, message in batch.waiting()
            if item.state is State.RECEIVED and item.original in batch.parts
        )
        put = partial(self._put, editor.name, batch, Room(self._batch_bytes))
        return self._time_limit.run(partial(_edited, editor), waiting, put)

    def _put(
        self,
        editor: str,
        batch: Batch,
        room: Room,
        item: Item,
        result: Message | Sequence[Message] | Withheld | Exception,
    ) -> None:
        """Replace *item* by the result of *editor*, or apply its exception."""
        if isinstance(result, Message):
            if self._fits(batch, room, item, (result,)):
                item.message = result
        elif isinstance(result, Withheld):
            self._replace(batch, item, Withheld(f"{editor}: {result.reason}"))
        elif not isinstance(result, Exception):
            if self._fits(batch, room, item, result):
                self._replace(batch, item, result)
        elif isinstance(result, MessageRejected):
            self._reject(batch, item, result.by(editor))
        else:
            self._reject(batch, item, _unexpected(editor, result))

    def _fits(self, batch: Batch, room: Room, item: Item, messages: Sequence[Message]) -> bool:
        """Return whether there is room for the result for *item*; rejects or postpones it otherwise."""
        if room.takes(item, messages):
            return True
        if room.of_one > self._batch_bytes and (len(messages) > 1 or len(batch.parts[item.original]) > 1):
            problem = f"the editors have made {room.of_one} bytes of it, expected at most {self._batch_bytes}"
            self._reject(batch, item, MessageRejected("MessageTooLarge", problem))
            return False
        if batch.is_first(item):
            return True  # a single large message
        batch.postpone(item)
        return False

    def _edit_together(self, editor: BatchEditor, batch: Batch) -> Awaitable[None] | None:
        """Give all messages to *editor*; returns nothing to await if no message is left."""
        waiting = batch.waiting()
        return self._ask(editor, batch, waiting) if waiting else None

    async def _ask(self, editor: BatchEditor, batch: Batch, waiting: Sequence[tuple[Item, Message]]) -> None:
        while waiting:
            results = await _answers(editor, batch, [message for _, message in waiting])
            answers = [(item, result) for (item, _), result in zip(waiting, results, strict=True)]
            if editor.joins and _has_failing_siblings(answers):
                # What it has joined may contain parts of rejected messages: it is asked again without those.
                for item, result in answers:
                    if isinstance(result, MessageRejected) and item.state is State.RECEIVED:
                        self._reject(batch, item, result)
                waiting = batch.waiting()
                continue
            self._apply(batch, answers, joins=editor.joins)
            return

    def _apply(self, batch: Batch, answers: Sequence[tuple[Item, EditedTogether]], *, joins: bool) -> None:
        for item, result in answers:
            if isinstance(result, Joined):
                item.join(answers[result.leader][0], result)
        room = Room(self._batch_bytes)
        for item, result in answers:
            if item.original not in batch.parts:
                return
            if item.state is not State.RECEIVED or isinstance(result, Joined):
                continue
            if isinstance(result, MessageRejected):
                self._reject(batch, item, result)
            elif isinstance(result, Postponed):
                self._postpone(batch, item)
            elif isinstance(result, Withheld) or joins or self._fits(batch, room, item, result):
                self._replace(batch, item, result)

    def _postpone(self, batch: Batch, item: Item) -> None:
        if batch.is_first(item):
            problem = f"its parts have more than {self._batch_bytes} bytes together"
            self._reject(batch, item, MessageRejected("MessageTooLarge", problem))
        else:
            batch.postpone(item)

    def _replace(self, batch: Batch, item: Item, result: Sequence[Message] | Withheld) -> None:
        """Replace *item* by the messages that an editor has returned for it."""
        if isinstance(result, Withheld):
            _withhold(batch, item, result)
        elif not result:
            _withhold(batch, item, Withheld(NOTHING_LEFT))
        elif len(result) > 1 and batch.is_numbered:
            # At a redelivery nothing would say which part was sent in which joined message.
            description = "an editor split a message after another editor had joined messages"
            self._reject(batch, item, MessageRejected("SplitAfterJoin", description))
        else:
            item.message = result[0]
            if len(result) > 1:
                parts = batch.parts[item.original]
                place = parts.index(item) + 1
                parts[place:place] = [item.split(message) for message in result[1:]]

    def _number(self, batch: Batch) -> Awaitable[None] | None:
        """Number the parts of each message, after the journal was asked for results if one may be there."""
        return then(self._recall.of(batch), partial(self._put_numbers, batch))

    def _put_numbers(self, batch: Batch) -> None:
        """Number the parts of each message, and finish those whose result is known from an earlier delivery."""
        batch.is_numbered = True
        for original, parts in batch.parts.items():
            item = parts[0]
            if item.state is not State.RECEIVED:
                continue
            known = item.known(self._accepted)
            if known is not None:
                batch.parts[original] = [item]
                item.recall(known, self._accepted)
                continue
            # Without an editor no message becomes several.
            requested = original.requested_share(self._task).part if self._editors else None
            if requested is not None and requested.total != len(parts):
                description = (
                    f"{PART} asks for part {requested.number} of {requested.total}, but the editors split the message"
                    f" into {len(parts)}; without this property all parts are sent"
                )
                self._reject(batch, item, MessageRejected("NoSuchPart", description))
            elif len(parts) > 1:
                self._number_parts(parts, requested)

    def _number_parts(self, parts: Sequence[Item], requested: Part | None) -> None:
        key, event_key = parts[0].key, parts[0].event_key
        for number, part in enumerate(parts):
            part.part = Part(number, len(parts))
            part.key = None if key is None else (*key, *part.part)
            part.event_key = None if event_key is None else (*event_key, *part.part)
            known = part.known(self._accepted)
            if known is not None:
                part.recall(known, self._accepted)
            elif requested is not None and part.part != requested:
                reason = f"{PART} asks for part {requested.number} of {requested.total} only"
                part.withhold(Outcome.FILTERED, reason, Stage.EDITED)

    def _reject(self, batch: Batch, item: Item, error: MessageRejected) -> None:
        self._failure.reject(batch, item, error, Stage.EDITED)


def _withhold(batch: Batch, item: Item, withheld: Withheld) -> None:
    item.withhold(Outcome.FILTERED, withheld.reason, Stage.EDITED)
    parts = batch.parts[item.original]
    if len(parts) > 1:
        # The journal has the parts that are left, or the last one if none is.
        parts.remove(item)


def _edited(editor: Editor, message: Message) -> Message | Sequence[Message] | Withheld:
    """Return the result of *editor* for a message: usually one message."""
    result = editor.edit(message)
    return result if isinstance(result, Withheld) or len(result) != 1 else result[0]


def _named(editor: str, answer: EditedTogether) -> EditedTogether:
    """Return *answer* with the name of its editor in the reason, if it has one."""
    match answer:
        case MessageRejected():
            return answer.by(editor)
        case Withheld() | Joined(reason=str()):
            return answer._replace(reason=f"{editor}: {answer.reason}")
    return answer


def _has_failing_siblings(answers: Sequence[tuple[Item, EditedTogether]]) -> bool:
    """Return whether an editor rejects a part of a message and has already used another part of it."""
    failing = {item.original for item, result in answers if isinstance(result, MessageRejected)}
    return bool(failing) and any(
        item.original in failing and not isinstance(result, MessageRejected) for item, result in answers
    )


def _unexpected(name: str, error: Exception) -> MessageRejected:
    """Return the rejection for a bug in an editor, without the text of *error*, which may quote the body."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    place = "" if traceback is None else f" in {Path(traceback.tb_frame.f_code.co_filename).name}"
    line = "" if traceback is None else f", line {traceback.tb_lineno}"
    kind = type(error).__name__
    return MessageRejected(kind, f"{name}: unexpected {kind}{place}{line}; this is a bug in the editor")


async def _answers(editor: BatchEditor, batch: Batch, messages: Sequence[Message]) -> Sequence[EditedTogether]:
    """Return the answer for each message; raises only BuswayError, if a service for the editor does not answer."""
    try:
        answers = await batch.ask(f"the editor {editor.name}", partial(_edit_batch, editor, messages))
        return [_named(editor.name, answer) for answer in answers]
    except BuswayError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, a message is at fault
        if len(messages) == 1:
            return [_unexpected(editor.name, error)]
    half = len(messages) // 2
    first, second = [await _answers(editor, batch, each) for each in (messages[:half], messages[half:])]
    return [
        *first,
        *(each._replace(leader=each.leader + half) if isinstance(each, Joined) else each for each in second),
    ]


async def _edit_batch(editor: BatchEditor, messages: Sequence[Message], seconds: float) -> Sequence[EditedTogether]:
    return await editor.edit_batch(messages, timeout_seconds=seconds)
