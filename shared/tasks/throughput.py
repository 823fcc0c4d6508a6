"""What a task states about its throughput, and the levers that fit: how many functions take its messages, and how."""

from datetime import timedelta
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from shared.editors.options import AS_WRITTEN, Strict

MOST_LANES = 64

# A lane is one batch in flight. At 10 ms and less one carries more than a target of the Standard tier takes.
_ROUND_TRIP_OF_A_LANE = timedelta(milliseconds=10)
_MOST_LANES_WITHOUT_SESSIONS = 16
# On a plan that scales each function by itself, more lanes would be more instances than a backlog of sessions needs.
_MOST_LANES_OF_OWN_INSTANCES = 8


class Levers(NamedTuple):
    """How the messages of a task are taken."""

    lanes: int
    dispatch: Literal["batch", "single"]

    def __str__(self) -> str:
        """Return them as in a task file."""
        return "`dispatch: single`" if self.dispatch == "single" else f"`lanes: {self.lanes}`"

    def fits(self, other: "Levers") -> bool:
        """Return whether both are about the same: up to twice as many lanes."""
        few, many = sorted((self.lanes, other.lanes))
        return self.dispatch == other.dispatch and many <= 2 * few


class Throughput(Strict):
    """What decides how the messages of a task are taken."""

    round_trip: Annotated[timedelta, Field(strict=False, ge=timedelta(0), le=timedelta(seconds=10)), AS_WRITTEN]
    """The round trip from the app to its farthest target, such as 80ms; at most 10s."""
    sessions: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """How many sessions have messages at a time; needed if the source has sessions."""
    plan: Literal["flex-consumption", "premium", "dedicated"] = "flex-consumption"
    """Flex Consumption scales each function by itself: there every lane has instances of its own."""

    def levers(self, *, can_be_single: bool) -> Levers:
        """Return the levers that fit; *can_be_single*: whether the task may have `dispatch: single`."""
        if self.sessions is None:
            lanes = -(-self.round_trip // _ROUND_TRIP_OF_A_LANE)
            return Levers(min(max(lanes, 1), _MOST_LANES_WITHOUT_SESSIONS), "batch")
        if self.plan == "flex-consumption" and self.sessions > _MOST_LANES_OF_OWN_INSTANCES:
            if can_be_single:
                return Levers(1, "single")
            return Levers(_MOST_LANES_OF_OWN_INSTANCES, "batch")
        return Levers(min(self.sessions, MOST_LANES), "batch")
