"""What a task file says about heartbeats, and the tasks that cannot have any."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated, Protocol

from pydantic import Field

from shared.editors.options import AS_WRITTEN, Strict


class HeartbeatOptions(Strict):
    """A message that the app sends through each route of the task to see it arrive."""

    every: Annotated[timedelta, Field(strict=False, ge=timedelta(seconds=5), le=timedelta(hours=1)), AS_WRITTEN]
    """Time from one to the next: 5s to 1h."""
    visible: bool = False
    """Whether all who read a source hub, or a target queue or hub, may see heartbeats."""


class HeartbeatSource(Protocol):
    """What decides whether a source can take heartbeats."""

    @property
    def hub(self) -> str | None:
        """The event hub, None for other sources."""

    @property
    def dead_letter(self) -> object:
        """Whether it is a dead-letter queue."""

    @property
    def form(self) -> str:
        """What its messages are: message or envelope."""


def heartbeat_fault(options: HeartbeatOptions, source: HeartbeatSource, vias: Iterable[str]) -> str | None:
    """Return why a task with this source and routes by these ways cannot have heartbeats, None if it can."""
    if source.dead_letter:
        return "has a heartbeat for a dead-letter queue, expected none: nobody can send to one"
    if source.form == "envelope":
        return "has a heartbeat for a source of envelopes, expected none: only a binding sends those"
    if "binding" in vias:
        return "has a heartbeat and `via: binding`, expected one of them: the host does not say when it has sent"
    if source.hub is not None and not options.visible:
        return (
            "has a heartbeat for a hub, expected `visible: true`, or a task of its own between two hubs for it: "
            "all consumers of a hub see all events"
        )
    return None
