"""
Messages of a delivery that pass the steps of the line together, and the steps.

If they become too large together (`shared.line.editor_steps`), the last ones are postponed: they form another batch
once the others are sent.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from shared.errors import BuswayError
from shared.line.item import Item, Original
from shared.line.states import Stage, State
from shared.message.arrival import Origin
from shared.message.heartbeat import Heartbeat
from shared.message.message import Message
from shared.protocols import BatchReport, Entry, Flush

# What a message takes beside its contents, with all that is known of it.
_OWN_BYTES = 4096


class Ask(Protocol):
    """Asks an external store or service, and asks again while the delivery may wait; raises the last error."""

    async def __call__[T](self, place: str, question: Callable[[float], Awaitable[T]], /) -> T:
        """Return the answer to *question*, which gets a timeout in seconds; *place* names the store or service."""
        ...


class Batch:
    """The messages from one place in a delivery to another."""

    def __init__(
        self,
        origin: Origin,
        contents: Sequence[bytes],
        lock_tokens: Sequence[bytes | None],
        ask: Ask,
        now: datetime,
        *,
        first: int = 0,
        skipped: int = 0,
    ) -> None:
        """
        Take the encoded messages and, in their order, their lock tokens (None where the source has no locks).

        Editors ask stores with *ask*. *first* is the position of the first message in the delivery. If it is an
        envelope, the first *skipped* of its messages are already decided.
        """
        self.origin = origin
        self.contents = contents
        self.lock_tokens = lock_tokens
        self.ask = ask
        self.now = now
        self.first = first
        self.skipped = skipped
        self.clear()

    def clear(self) -> None:
        """Forget everything that has been decided."""
        self.parts: dict[Original, list[Item]] = {}
        """
        The items of each message, in the order of the delivery: more than one for a message with parts.

        Each message of an envelope is one of its own once the envelope is opened.
        """
        self.is_numbered = False
        """Whether each part has its number: no message may become several from then on."""
        self.heartbeats: dict[Item, Heartbeat] = {}
        """The messages that are heartbeats; they are withheld."""
        self.visited: dict[Item, list[str]] = {}
        """The path of each message that has one, as it was before this hop."""
        self.expired: set[Item] = set()
        """The messages whose life has ended, and which may have several targets."""
        self.unwritten: list[Flush] = []
        """The records of outcomes that the journal has not confirmed."""
        self.decided = 0
        """The number of messages of the first envelope that an earlier batch has decided; they are left out here."""
        self.postponed = 0
        """The number of messages of the last envelope that wait for the next batch."""

    @property
    def end(self) -> int:
        """The position behind the last message."""
        return self.first + len(self.contents)

    @property
    def items(self) -> list[Item]:
        """All items, in the order of the batch."""
        return [item for parts in self.parts.values() for item in parts]

    def waiting(self, state: State = State.RECEIVED) -> list[tuple[Item, Message]]:
        """Return the items in a *state* before the send, with their messages."""
        return [
            (item, item.message)
            for parts in self.parts.values()
            for item in parts
            if item.state is state and item.message is not None
        ]

    def is_first(self, item: Item) -> bool:
        """Return whether no message is in front of that of *item*, which therefore cannot be postponed."""
        return item.original is next(iter(self.parts))

    def postpone(self, item: Item) -> None:
        """Postpone the messages from that of *item* on until those before it are decided; it is not the first."""
        originals = list(self.parts)
        index = originals.index(item.original)
        for original in originals[index:]:
            for part in self.parts.pop(original):
                self.heartbeats.pop(part, None)
        position = item.original.position
        is_inside = originals[index - 1].position == position
        self.postponed = sum(original.position == position for original in originals[index:]) if is_inside else 0
        taken = position - self.first + is_inside
        self.contents, self.lock_tokens = self.contents[:taken], self.lock_tokens[:taken]

    @property
    def rest(self) -> tuple[int, int]:
        """The position of the first message that is not decided with this batch, and how many in it are."""
        if not self.postponed:
            return self.end, 0
        last = self.end - 1
        decided = sum(original.position == last for original in self.parts)
        return last, decided + (self.decided if last == self.first else 0)

    def by_position(self) -> Mapping[int, list[Item]]:
        """Return the items of each delivered message; an envelope has the items of all its messages."""
        found: defaultdict[int, list[Item]] = defaultdict(list)
        for original, parts in self.parts.items():
            found[original.position] += parts
        return found

    def number(self) -> list[Entry]:
        """Number what each delivered message has become; return for the journal what was received."""
        entries = []
        for position, items in self.by_position().items():
            original = items[0].original
            start = self.decided if position == self.first else 0
            waiting = self.postponed if position == self.end - 1 else 0
            has_copies = len(items) > 1 and any(item.only_for is not None for item in items)
            if start or waiting or has_copies or original is not items[-1].original:
                for number, item in enumerate(items, start):
                    item.number = number
            else:
                # A replayed part keeps its number.
                for item in items:
                    item.number = None if item.part is None else item.part.number
            if original.arrived is not None:
                entries.append(Entry(original.arrival, original.arrived, start + len(items) + waiting))
        return entries

    def report(self, seconds: float, retries: int, error: BuswayError | None) -> BatchReport:
        """Return the report; heartbeats are no messages in it."""
        messages = [item for item in self.items if item not in self.heartbeats]
        size, heartbeats = len(self.contents) - len(self.heartbeats), [*self.heartbeats]
        return BatchReport(self.origin, size, messages, self.now, seconds, retries, error, heartbeats)


class Room:
    """The remaining bytes for the results of a step in a batch."""

    def __init__(self, limit: int) -> None:
        """Begin with room for *limit* bytes."""
        self._left = limit
        self._latest: Original | None = None
        self.of_one = 0
        """The bytes that the latest message has become."""

    def takes(self, item: Item, messages: Iterable[Message]) -> bool:
        """Subtract the result for *item*; return whether there was room for it."""
        if item.original is not self._latest:
            self._latest, self.of_one = item.original, 0
        for message in messages:
            raw = message.sections
            size = len(raw.body) + len(raw.application_properties) + _OWN_BYTES
            self.of_one += size
            self._left -= size
        return self._left >= 0


class Step(NamedTuple):
    """One step of the line: a change to all messages of a batch that are still to be sent."""

    name: str
    """As `busway try` shows it: an editor with its place in the task file, or what the line does."""
    stage: Stage
    run: Callable[[Batch], Awaitable[None] | None]
    """Changes the batch; only steps that ask a store or a service have to be awaited."""


def then(pending: Awaitable[None] | None, work: Callable[[], None]) -> Awaitable[None] | None:
    """Do *work* after what is *pending*; at once, with nothing to await, if that is nothing."""

    async def later(awaited: Awaitable[None]) -> None:
        await awaited
        work()

    if pending is not None:
        return later(pending)
    work()
    return None


type Watch = Callable[[Sequence[Step]], Sequence[Step]]
"""Returns the steps with an observer around each; the line without one runs the steps themselves."""
