"""
Which target takes a message.

A route is a Service Bus rule plus a target: the first whose `when` is true of the message takes it, after its `action`
has been applied. A route without `when` takes every message that reaches it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from shared.errors import TargetRefused
from shared.message.message import Message
from shared.message.rule_properties import RuleProperties
from shared.protocols import Outgoing, Output
from shared.rules.rule import Action, Filter

KEEP_PARTITION = "keep"


class Target(NamedTuple):
    """
    Where messages are sent: an output, its site's name, and the entity in it.

    `fit` makes the changes that the target's kind of namespace needs (`shared.message.mapping`). `partition` is a
    partition of a hub, or KEEP_PARTITION for the one with the same id as the source's.
    """

    output: Output
    site: str
    entity: str
    fit: Callable[[Message], None] | None = None
    partition: str | None = None

    def outgoing(self, message: Message) -> Outgoing:
        """Return *message* fitted and encoded; TargetRefused where its partition is to be kept and not known."""
        if self.fit is not None:
            self.fit(message)
        partition = self.partition
        if partition == KEEP_PARTITION:
            partition = message.arrival.origin.partition
            if partition is None:
                raise TargetRefused(f"{self}: the host did not name the partition of the event")
        return Outgoing(message.encode(), *message.envelope(), partition)

    def __str__(self) -> str:
        """Return site and entity, as journals and log lines name a target."""
        return f"{self.site}/{self.entity}"


class Route(NamedTuple):
    """One way out of a task."""

    target: Target
    when: Filter | None = None
    action: Action | None = None


class Router:
    """The routes of one task, in the order of its file."""

    def __init__(self, routes: Sequence[Route]) -> None:
        """Try *routes* in their order."""
        self._routes = tuple(routes)

    def route(self, message: Message) -> Target | None:
        """Return the target of *message* with the route's action applied to it, None when no route takes it."""
        properties = RuleProperties(message)
        for target, when, action in self._routes:
            if when is None or when.matches(properties):
                if action is not None:
                    action.apply(properties)
                return target
        return None
