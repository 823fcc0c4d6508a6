"""What a task file says beside its source, editors and routes."""

from datetime import timedelta
from typing import Annotated, Literal, NamedTuple

from pydantic import Discriminator, Field, Tag

from shared.editors.options import AS_WRITTEN, Off, Strict
from shared.line.deadline import DEFAULT_HOLD, LONGEST_HOLD
from shared.line.task import DEFAULT_REJECTS_IN_A_ROW
from shared.message.loop_prevention import DEFAULT_MAX_HOPS
from shared.time_limit import DEFAULT_SECONDS


class StampedLife(Strict):
    """A time to live that is set on every copy."""

    stamp: Annotated[timedelta, Field(strict=False, gt=timedelta(0), le=timedelta(milliseconds=2**32 - 1)), AS_WRITTEN]
    """The life, such as 2m or PT2M."""


class LoopPrevention(Strict):
    """Loop prevention: a message is never sent to a site on its repl-path."""

    max_hops: Annotated[int, Field(ge=1)] = DEFAULT_MAX_HOPS
    """Sites that a message may pass through."""


class Limits(Strict):
    """The limits at which a task stops or stops waiting."""

    rejects_in_a_row: Annotated[
        Annotated[Off, Tag("bool")] | Annotated[int, Field(ge=1), Tag("int")],
        Discriminator(lambda value: "bool" if isinstance(value, bool) else "int"),
    ] = DEFAULT_REJECTS_IN_A_ROW
    """
    Number of rejected messages that stops the task: in a row before the first good message, and again that number for
    each good one, up to a hundred times; `off` for no limit, the default of a webhook.
    """
    edit_time: Annotated[
        timedelta, Field(strict=False, ge=timedelta(milliseconds=10), le=timedelta(seconds=60)), AS_WRITTEN
    ] = timedelta(seconds=DEFAULT_SECONDS)
    """Processor time of an editor for each 256 KiB of a message: 10ms to 60s; a `python` editor has ten times that."""
    rate: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    """Messages per second that each instance sends at most, all lanes together; by default as many as it can."""
    hold: Annotated[timedelta, Field(strict=False, ge=timedelta(seconds=1), le=LONGEST_HOLD), AS_WRITTEN] = DEFAULT_HOLD
    """How long a delivery waits for its targets: 1s to 50m, and 5m below the timeout in host.json."""


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


class HeartbeatOptions(Strict):
    """A message that the app sends through each route of the task to see it arrive."""

    every: Annotated[timedelta, Field(strict=False, ge=timedelta(seconds=5), le=timedelta(hours=1)), AS_WRITTEN]
    """Time from one to the next: 5s to 1h."""
    visible: bool = False
    """Whether all who read a source hub, or a target queue or hub, may see heartbeats."""
