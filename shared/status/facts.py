"""What a reader has learned of one task besides the reports of instances: the look into its entities."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shared.message.waiting import PartitionEnd, Waiting
from shared.status.model import DeadLetters, Place


@dataclass(frozen=True)
class TaskPlaces:
    """The entities of a task."""

    task: str
    source: Place
    source_kind: str
    targets: Sequence[Place]
    rejects: Place | None
    lanes: int = 1
    heartbeats: Sequence[Place] = ()
    """Where heartbeats go, by the number of the route; empty if the task has none."""
    heartbeat_seconds: float = 0.0
    """Seconds from one to the next."""
    is_hub: bool = False
    """Whether the source has partitions, each with an owner."""


@dataclass(frozen=True)
class Look:
    """What was found in the entities of a task; a text is the reason why it is unknown."""

    source: Waiting | Mapping[str, PartitionEnd] | str
    dead_letters: Sequence[DeadLetters] = field(default=())
    is_source_refused: bool = False
    """The source is missing, disabled or closed to this reader."""
