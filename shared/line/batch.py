"""
Messages that pass the steps of the line together, and the steps.

The host has delivered them together, or one by one at about the same time (`shared.line.gathering`). If they become
too large together (`shared.line.editing`), the last ones are postponed: they form another batch once the others are
sent.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from shared.errors import BuswayError
from shared.line.item import Item
from shared.line.states import Stage, State
from shared.message.arrival import Origin
from shared.message.heartbeat import Heartbeat
from shared.message.message import Message
from shared.protocols import BatchReport, Outcome


class Ask(Protocol):
    """Asks an external store or service, and asks again while the batch may wait; raises the last error."""

    async def __call__[T](self, place: str, question: Callable[[float], Awaitable[T]], /) -> T:
        """Return the answer to *question*, which gets a timeout in seconds; *place* names the store or service."""
        ...


type Release = Callable[[Sequence[int]], Awaitable[None]]
"""Is given the positions of messages whose result is on record: their source may give them up."""


class Batch:
    """The messages that pass the line together."""

    ask: Ask
    """How editors ask a store or a service, set once the batch has its deadline."""

    def __init__(
        self,
        origin: Origin,
        contents: Sequence[bytes],
        lock_tokens: Sequence[bytes | None],
        now: datetime,
        *,
        first: int = 0,
        skipped: int = 0,
    ) -> None:
        """
        Take the encoded messages and, in their order, their lock tokens (None where the source has no locks).

        *first* is the position of the first message in the delivery. If it is an envelope, *skipped* is the number of
        its messages that are already decided.
        """
        self.origin = origin
        self.contents = contents
        self.lock_tokens = lock_tokens
        self.now = now
        self.first = first
        self.skipped = skipped
        self.release: Release | None = None
        """Called when the results of messages are on record, if each can be settled by itself."""
        self.releases_all = False
        """Whether that is called for every message, because the host settles none."""
        self.released: set[int] = set()
        """The places of the messages for which that is so."""
        self.clear()

    def clear(self) -> None:
        """Forget everything that has been decided."""
        self.parts: list[list[Item]] = []
        """
        The items of each message, in the order of the batch: more than one for a message with parts.

        Each message of an envelope is one of its own once the envelope is opened.
        """
        self.is_numbered = False
        """Whether each part has its number: no message may become several from then on."""
        self.has_repeats = False
        self.repeated: list[int] = []
        """The indices of messages that the batch has had before, as a whole."""
        self.rejected: set[int] = set()
        """The indices of the messages that are rejected before the send."""
        self.heartbeats: dict[Item, Heartbeat] = {}
        """The messages that are heartbeats; they are withheld."""
        self.visited: dict[Item, list[str]] = {}
        """The path of each message that has one, as it was before this hop."""
        self.decided: list[Item] = []
        """The messages of the first envelope that are decided already."""
        self.postponed: list[Item] = []
        """The messages of the last envelope that wait."""

    @property
    def items(self) -> list[Item]:
        """All items, in the order of the batch."""
        return [item for parts in self.parts for item in parts]

    def by_delivery(self) -> list[list[Item]]:
        """Return the items of each delivered message; an envelope has the items of all its messages."""
        found: list[list[Item]] = [[] for _ in self.contents]
        for item in (*self.decided, *self.items, *self.postponed):
            found[item.delivery].append(item)
        return found

    @property
    def decides(self) -> int:
        """The number of messages in the last envelope that are decided after this batch, 0 if all are."""
        if not self.postponed:
            return 0
        last = self.postponed[0].delivery
        before = len(self.decided) if last == 0 else 0
        return before + sum(parts[0].delivery == last for parts in self.parts)

    def concluded(self) -> dict[int, list[Item]]:
        """Return the items of each message that needs no redelivery and is not released, by its place in the batch."""
        return {
            place: members
            for place, members in enumerate(self.by_delivery())
            if place not in self.released
            and members
            and all(item.outcome not in {None, Outcome.RETRY} for item in members)
        }

    def unreleased(self, items: Sequence[Item]) -> Sequence[Item]:
        """Return those of *items* whose message is not released."""
        return [item for item in items if item.delivery not in self.released] if self.released else items

    async def conclude(self, places: Iterable[int]) -> None:
        """Release the messages at these places."""
        concluded = [*places]
        self.released.update(concluded)
        if self.release is not None and concluded:
            await self.release([self.first + place for place in concluded])

    def postpone(self, index: int) -> None:
        """Postpone the messages from *index* on until those before it are decided; *index* is not the first."""
        behind = [item for parts in self.parts[index:] for item in parts]
        for item in behind:
            item.release()
            self.heartbeats.pop(item, None)
        del self.parts[index:]
        cut = behind[0].delivery
        is_inside = self.parts[-1][0].delivery == cut
        self.postponed = [item for item in behind if item.delivery == cut] if is_inside else []
        self.contents = self.contents[: cut + is_inside]
        self.lock_tokens = self.lock_tokens[: cut + is_inside]
        self.repeated = [each for each in self.repeated if each < index]
        self.rejected = {each for each in self.rejected if each < index}

    def report(self, items: Sequence[Item], seconds: float, retries: int, error: BuswayError | None) -> BatchReport:
        """Return the report on *items*, which are all of the batch; heartbeats are no messages in it."""
        size, heartbeats = len(self.contents), [*self.heartbeats]
        if heartbeats:
            size -= len(heartbeats)
            items = [item for item in items if item not in self.heartbeats]
        return BatchReport(self.origin, size, items, self.now, seconds, retries, error, heartbeats)

    def waiting(self, state: State = State.RECEIVED) -> list[tuple[Item, Message]]:
        """Return the items in a *state* before the send, with their messages."""
        return [
            (item, item.message)
            for parts in self.parts
            for item in parts
            if item.state is state and item.message is not None
        ]


def number_parts(deliveries: Iterable[Sequence[Item]]) -> None:
    """Number all parts of each delivery; a replayed part keeps its number."""
    for members in deliveries:
        if members and members[0].index == members[-1].index:
            for item in members:
                item.number = None if item.part is None else item.part.number
        else:
            for number, item in enumerate(members):
                item.number = number


class Step(NamedTuple):
    """One step of the line: a change to all messages of a batch that are still to be sent."""

    name: str
    """As `busway try` shows it: an editor with its place in the task file, or what the line does."""
    stage: Stage
    run: Callable[[Batch], Awaitable[None] | None]
    """Changes the batch; only steps that ask a store or a service have to be awaited."""


type Watch = Callable[[Sequence[Step]], Sequence[Step]]
"""Returns the steps with an observer around each; the line without one runs the steps themselves."""
