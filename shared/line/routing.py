"""
The choice of the targets for a message.

A route is a Service Bus rule and one target or several. The first route whose `when` is true for the message gets it,
after its `action` has been applied. A route without `when` gets every message that reaches it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from shared.errors import TargetRefused
from shared.line.binding_output import BindingOutput
from shared.line.text_form import TextForm
from shared.message.message import Message
from shared.message.rule_properties import RuleProperties
from shared.protocols import Outgoing, Output
from shared.rules.rule import Action, Filter

KEEP_PARTITION = "keep"
_SCHEDULED = "x-opt-scheduled-enqueue-time"


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
    binding: BindingOutput | None = None
    """The same as the output, if the host sends to the target through an output binding."""
    at_once: bool = False
    """Whether a batch goes in several calls at once: no order is to be kept, and the output has several in flight."""
    texts: TextForm | None = None
    """How the target gets messages as texts, for an output that sends nothing else."""

    def outgoing(self, message: Message, part: int | None = None) -> Outgoing:
        """
        Return *message* fitted and encoded; *part* is its number among the parts of its message.

        Raises: TargetRefused if it must keep an unknown partition, MessageRejected if no text can carry it.
        """
        if self.fit is not None:
            self.fit(message)
        if self.texts is not None:
            content = self.texts.text(message, part).encode()
            scheduled = message.annotation(_SCHEDULED)
            due = scheduled.payload if scheduled is not None and isinstance(scheduled.payload, int) else None
            identity, *_ = message.envelope()
            # Without session and key: the target keeps no order.
            return Outgoing(content, identity, None, None, None, message.time_to_live, due)
        partition = self.partition
        if partition == KEEP_PARTITION:
            partition = message.arrival.origin.partition
            if partition is None:
                raise TargetRefused(f"{self}: the host did not name the partition of the event")
        content = message.encode() if self.binding is None else self.binding.form.text(message, part).encode()
        return Outgoing(content, *message.envelope(), partition)

    def __str__(self) -> str:
        """Return site and entity, as journals and log lines name a target."""
        return f"{self.site}/{self.entity}"


class Route(NamedTuple):
    """One way out of a task."""

    target: Target
    when: Filter | None = None
    action: Action | None = None
    others: Sequence[Target] = ()
    """More targets: each gets a copy of the message."""


class Router:
    """The routes of one task, in the order of its file."""

    def __init__(self, routes: Sequence[Route]) -> None:
        """Try *routes* in their order."""
        self._routes = tuple(routes)
        self.fans_out = any(route.others for route in routes)
        """Whether a message may have several targets."""
        self.bindings = tuple(
            dict.fromkeys(route.target.binding for route in routes if route.target.binding is not None)
        )
        """The output bindings that the function of the task declares."""

    def route(self, message: Message) -> Sequence[Target]:
        """Return the targets of *message* and apply the route's action to it; none if no route matches."""
        properties = RuleProperties(message)
        for target, when, action, others in self._routes:
            if when is None or when.matches(properties):
                if action is not None:
                    action.apply(properties)
                return (target, *others)
        return ()
