"""What waits in an entity, as far as it can be seen without receiving."""

from collections.abc import Mapping
from typing import NamedTuple

DEAD_LETTERS = "/$DeadLetterQueue"
"""The end of the path of a dead-letter queue."""


class Waiting(NamedTuple):
    """The messages of an entity that a receiver would get; *oldest* is when the first was enqueued, in milliseconds."""

    messages: int
    is_minimum: bool = False
    """There are at least that many."""
    oldest: int | None = None


class TopicDeadLetters(NamedTuple):
    """The dead letters of each subscription of a topic, by its name."""

    by_subscription: Mapping[str, int]


class PartitionEnd(NamedTuple):
    """The numbers of a partition; *last_enqueued* is a time in milliseconds."""

    first: int
    last: int
    last_enqueued: int | None
    is_empty: bool
