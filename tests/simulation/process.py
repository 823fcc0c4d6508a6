"""A process that talks to sites, and that can be killed at every await."""

from collections import Counter
from contextvars import Context
from typing import TYPE_CHECKING

from tests.simulation.event_loop import OWNER

if TYPE_CHECKING:
    from tests.simulation.network import Channel


class Process:
    """What runs in its context ends when it is killed; it is the owner of its connections."""

    def __init__(self, name: str, batch_limit: int, refuses: tuple[str, str] | None = None) -> None:
        """Take batches of *batch_limit* bytes; *refuses* is the only place that refuses what is heavy, None: all do."""
        self.name = name
        self.batch_limit = batch_limit
        self.refuses = refuses
        self.is_dead = False
        self.is_forgetful = False
        """Whether the journal did not answer it."""
        self.channels: dict[Channel, None] = {}
        self.sent: dict[tuple[str, str], float] = {}
        """When it learnt what is accepted: by the place and the name in the body."""
        self.under_way = Counter[tuple[str, str]]()
        """What it is sending now, by the same."""
        self.context = Context()
        self.context.run(OWNER.set, self)

    def begins_to_send(self, place: str, names: set[str]) -> None:
        """Record that it sends messages, perhaps again."""

    def kill(self) -> None:
        """End at once: nothing of it runs any more, and its connections break."""
        if self.is_dead:
            return
        self.is_dead = True
        self.ended()
        for channel in list(self.channels):
            channel.cut()

    def ended(self) -> None:
        """Record that it has ended."""

    def leaves_partitions(self) -> None:
        """Let others read the partitions of hubs that it has taken."""
