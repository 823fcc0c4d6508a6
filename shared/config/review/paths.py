"""The path of a message through the network, with what is known of the message."""

from dataclasses import dataclass, field
from typing import NamedTuple

from shared.amqp.values import Value
from shared.config.models import Target, TaskFile
from shared.config.review.known_properties import Facts, Key
from shared.message.metadata import DEAD_LETTER_SOURCE, PATH, SEPARATOR
from shared.rules.syntax import Scope

PATH_KEY: Key = (Scope.USER, PATH)
DEAD_LETTER_SOURCE_KEY: Key = (Scope.USER, DEAD_LETTER_SOURCE)


class Node(NamedTuple):
    """A queue, topic or hub, by its connection's app setting and its name in lower case."""

    setting: str
    entity: str


@dataclass(frozen=True)
class Passage:
    """
    A message at an entity: what is known of it, and the way it came.

    `is_certain` says that it surely came here once its first conditions held; `marks` are the properties that rules of
    sources have set; `way` are the places it has passed, the present one last, `visited` the entities before that.
    """

    node: Node
    facts: Facts
    way: tuple[str, ...]
    is_certain: bool = True
    marks: frozenset[Key] = frozenset()
    visited: frozenset[Node] = frozenset()

    @property
    def path(self) -> list[str]:
        """Return the sites that it has left."""
        return history(self.facts, PATH_KEY)

    @property
    def deaths(self) -> int:
        """Return from how many dead-letter queues it was taken."""
        return len(history(self.facts, DEAD_LETTER_SOURCE_KEY))

    def __str__(self) -> str:
        return " → ".join(self.way)


class Edge(NamedTuple):
    """One way out of a task: a route by its index, or `rejects`."""

    task: TaskFile
    target: Target
    route: int | None

    @property
    def is_rejects(self) -> bool:
        """Return whether this is the way of rejected messages."""
        return self.route is None


@dataclass(frozen=True, slots=True)
class Stop:
    """Where a message could not go on: `cause` is mark, content, site or hops."""

    passage: Passage
    edge: Edge
    node: Node
    cause: str


@dataclass
class Way:
    """Where a message goes from one task, and where it stops."""

    onward: list[tuple[Edge, Passage]] = field(default_factory=list)
    stops: list[Stop] = field(default_factory=list)


def history(facts: Facts, key: Key) -> list[str]:
    """Return the parts of a history, oldest first; none where it is not known."""
    value = facts.of(key)
    text = value.payload if isinstance(value, Value) else None
    return text.split(SEPARATOR) if isinstance(text, str) and text else []
