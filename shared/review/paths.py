"""The path of a message through the network, with the known facts about the message."""

from dataclasses import dataclass, field
from typing import NamedTuple

from shared.amqp.values import Value
from shared.message.metadata import DEAD_LETTER_SOURCE, PATH, SEPARATOR
from shared.review.known_properties import Facts, Key
from shared.rules.syntax import Scope
from shared.tasks.models import TaskFile
from shared.tasks.routes import Target

PATH_KEY: Key = (Scope.USER, PATH)
DEAD_LETTER_SOURCE_KEY: Key = (Scope.USER, DEAD_LETTER_SOURCE)


class Node(NamedTuple):
    """A queue, topic or hub, by its connection's app setting and its name in lower case."""

    setting: str
    entity: str


@dataclass(frozen=True)
class Passage:
    """
    A message at an entity: the known facts about it, and its path.

    `is_certain` means that every message that satisfied the first conditions arrives here; `marks` are the properties
    that the rules of sources have set; `way` lists the places, the current one last; `visited` the entities before it.
    """

    node: Node
    facts: Facts
    way: tuple[str, ...]
    is_certain: bool = True
    marks: frozenset[Key] = frozenset()
    visited: frozenset[Node] = frozenset()

    @property
    def path(self) -> list[str]:
        """The sites that it has left."""
        return history(self.facts, PATH_KEY)

    @property
    def deaths(self) -> int:
        """The number of dead-letter queues that it has left."""
        return len(history(self.facts, DEAD_LETTER_SOURCE_KEY))

    def __str__(self) -> str:
        return " → ".join(self.way)


class Edge(NamedTuple):
    """A way out of a task: a route by its index, or `rejects`."""

    task: TaskFile
    target: Target
    route: int | None

    @property
    def is_rejects(self) -> bool:
        """Whether rejected messages go this way."""
        return self.route is None


@dataclass(frozen=True, slots=True)
class Stop:
    """A place where a message was stopped; `cause` is mark, content, site or hops."""

    passage: Passage
    edge: Edge
    node: Node
    cause: str


@dataclass
class Way:
    """The places to which a task sends a message, and those where the message is stopped."""

    onward: list[tuple[Edge, Passage]] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)


def history(facts: Facts, key: Key) -> list[str]:
    """Return the parts of a history, oldest first; empty if unknown."""
    value = facts.of(key)
    text = value.payload if isinstance(value, Value) else None
    return text.split(SEPARATOR) if isinstance(text, str) and text else []
