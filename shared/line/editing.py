"""
What the editors of a task make of its messages: of each by itself, or of a batch where one of them looks at it whole.

1. An editor that looks at one message needs nobody else and no I/O: a task without any other never waits here.
2. One that is given the batch (`BatchEditor`) is asked once for all that is left of it, in the order of the batch.
3. What has been joined to another message shares its fate and is given to no further editor.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from shared.errors import MessageRejected
from shared.message.message import Message
from shared.protocols import BatchEditor, EditedTogether, Editor, Joined, Withheld

_NOTHING_LEFT = Withheld("withheld by an editor")


@dataclass(slots=True, eq=False)
class Piece:
    """What the editors have left of a received message, or one of several things that they have made of it."""

    source: int
    """Index of the received message in its batch."""
    message: Message
    end: Withheld | MessageRejected | None = None
    leader: "Piece | None" = None
    """What it is joined to, None for what is a message of its own."""
    joined: Joined | None = None
    is_sent: bool = False
    """An earlier delivery of the batch has sent it."""

    @property
    def goes_on(self) -> bool:
        """Whether the next editor is given it."""
        return self.end is None and self.leader is None and not self.is_sent


class Ask(Protocol):
    """Asks the world, again and again while the batch may be held; raises what stood in the way to the end."""

    async def __call__[T](self, place: str, question: Callable[[float], Awaitable[T]], /) -> T:
        """Return the answer to *question*, which is given the seconds that it may take; *place* is whom it asks."""
        ...


def edited(editors: Sequence[Editor], message: Message) -> Sequence[Message] | Withheld:
    """Return what *editors* make of *message*; Withheld where nothing is left, with the last reason."""
    messages: Sequence[Message] = (message,)
    for editor in editors:
        withheld = _NOTHING_LEFT
        left: list[Message] = []
        for each in messages:
            result = editor.edit(each)
            if isinstance(result, Withheld):
                withheld = result
            else:
                left += result
        if not left:
            return withheld
        messages = left
    return messages


async def edited_together(
    editors: Sequence[Editor | BatchEditor],
    messages: Iterable[tuple[int, Message]],
    ask: Ask,
    is_sent: Callable[[int, int], bool],
) -> list[Piece]:
    """
    Return what *editors* make of *messages*, which stand with their indices in the batch, in the order of the batch.

    *is_sent* tells of a message by its index, and of which of its pieces, whether an earlier delivery has sent it.
    Raises what kept *ask* from an answer.
    """
    pieces = [Piece(index, message) for index, message in messages]
    has_joined = False
    for editor in editors:
        if isinstance(editor, BatchEditor) and editor.joins:
            has_joined = True
            for piece, number in _numbered(pieces):
                piece.is_sent = is_sent(piece.source, number)
        given = [piece for piece in pieces if piece.goes_on]
        if not given:
            break
        if isinstance(editor, BatchEditor):
            question = partial(_asked, editor, [piece.message for piece in given])
            results = await ask(f"the editor {editor.name}", question)
        else:
            results = [_alone(editor, piece.message) for piece in given]
        result_of = dict(zip(map(id, given), results, strict=True))
        parts: list[Piece] = []
        for piece in pieces:
            result = result_of.get(id(piece))
            if isinstance(result, Joined):
                piece.leader, piece.joined = given[result.leader], result
            elif result is not None:
                parts += _parts(piece, result, has_joined=has_joined)
                continue
            parts.append(piece)
        pieces = parts
    return pieces


def _alone(editor: Editor, message: Message) -> EditedTogether:
    try:
        return editor.edit(message)
    except MessageRejected as error:
        return error


async def _asked(editor: BatchEditor, messages: Sequence[Message], seconds: float) -> Sequence[EditedTogether]:
    return await editor.edit_batch(messages, timeout_seconds=seconds)


def _parts(piece: Piece, result: Sequence[Message] | Withheld | MessageRejected, *, has_joined: bool) -> list[Piece]:
    """Return what takes the place of *piece*, the first of it being the piece itself."""
    if isinstance(result, Withheld | MessageRejected):
        piece.end = result
    elif not result:
        piece.end = _NOTHING_LEFT
    elif len(result) > 1 and has_joined:
        # Redelivered, it could not be told which of the parts has been sent with which of the joined ones.
        piece.end = MessageRejected("SplitAfterJoin", "several messages were made of one behind an editor that joins")
    else:
        piece.message = result[0]
        return [piece, *(Piece(piece.source, message) for message in result[1:])]
    return [piece]


def _numbered(pieces: Sequence[Piece]) -> Iterator[tuple[Piece, int]]:
    """Yield the *pieces* that go on, each with its number among what is left of its message."""
    numbers: dict[int, int] = {}
    for piece in pieces:
        if isinstance(piece.end, Withheld):
            continue
        number = numbers.get(piece.source, 0)
        numbers[piece.source] = number + 1
        if piece.goes_on:
            yield piece, number
