"""
What one instance reports of itself: the content of its blob, and of its history by hour.

Units: times are milliseconds since 1970 UTC by the instance's clock, minutes are whole minutes since 1970.
"""

from typing import Literal

import msgspec

VERSION = 1
SECONDS_BETWEEN_WRITES = 5.0
"""Seconds after which an instance writes again if something has changed."""
HEARTBEAT_SECONDS = 20.0
"""Seconds after which it writes in any case."""
GONE_SECONDS = 3 * HEARTBEAT_SECONDS
"""Seconds without a write after which an instance counts as gone."""
MOST_REJECTS = 10
MOST_TEXT = 300
"""Characters of an error, a reason or an id that are kept."""


class Minute(msgspec.Struct, array_like=True, frozen=True):
    """What a task did in one minute: messages by outcome, and the highest lag in milliseconds of what it sent."""

    minute: int
    sent: int = 0
    withheld: int = 0
    rejected: int = 0
    retried: int = 0
    duplicates: int = 0
    lag: int | None = None

    def plus(self, other: "Minute") -> "Minute":
        """Return the sum of both, of one minute."""
        lags = [each for each in (self.lag, other.lag) if each is not None]
        return Minute(
            self.minute,
            self.sent + other.sent,
            self.withheld + other.withheld,
            self.rejected + other.rejected,
            self.retried + other.retried,
            self.duplicates + other.duplicates,
            max(lags, default=None),
        )


class Outage(msgspec.Struct, frozen=True):
    """A target or store that batches wait for."""

    place: str
    kind: Literal["unavailable", "refused"]
    text: str
    since: int


class Reject(msgspec.Struct, frozen=True):
    """A rejected message, without its content."""

    time: int
    message_id: str | None
    reason: str


class RouteReport(msgspec.Struct, omit_defaults=True, frozen=True):
    """The heartbeats of one route as one instance knows them: those that it sent, and those that it took."""

    route: int
    first: int | None = None
    """When it first sent one, or tried to."""
    sent: int | None = None
    """When it last sent one; the heartbeat has this number."""
    unsent: str | None = None
    """Why the last one could not be sent."""
    taken: int | None = None
    """The number of the last one that the source has delivered to it."""
    arrived: int | None = None
    """When the target last accepted one."""
    latency: int | None = None
    """Milliseconds from the source to the target, of that one."""
    refused: str | None = None
    """Why the target has not accepted the last one."""


class TaskReport(msgspec.Struct, omit_defaults=True):
    """A task as one instance knows it, all its lanes together."""

    task: str
    in_hand: int = 0
    """Messages of the batches in progress."""
    oldest_in_hand: int | None = None
    """The earliest enqueued time of a batch in progress."""
    last_batch: int | None = None
    """When the last batch ended."""
    rate: float = 0.0
    """Messages per second that were decided in the last minute."""
    outages: list[Outage] = []
    error: str | None = None
    """Why the last batch stays at the source, None if it was settled."""
    error_since: int | None = None
    rejects: list[Reject] = []
    """The last rejected messages, the latest first."""
    positions: dict[str, int] = {}
    """Of an event hub: the last sequence number that is settled, by partition."""
    minutes: list[Minute] = []
    """The last minutes, which the history may not have yet."""
    unwritten: int = 0
    """Records that a `best_effort` journal has lost since the start."""
    heartbeats: list[RouteReport] = []

    @property
    def has_only_heartbeats(self) -> bool:
        """Whether the instance has had no message of the task."""
        return bool(self.heartbeats) and self.last_batch is None and not self.in_hand


class InstanceReport(msgspec.Struct, omit_defaults=True):
    """The content of an instance's blob."""

    version: int
    instance: str
    started: int
    time: int
    tasks: list[TaskReport]
    app: str | None = None
    region: str | None = None
    busway: str | None = None
    """Version of Busway."""


class HourReport(msgspec.Struct):
    """The content of an instance's blob in the history: the minutes of an hour by task."""

    version: int
    minutes: dict[str, list[Minute]]


class Control(msgspec.Struct, omit_defaults=True):
    """What an operator has ordered for one task: the content of `control/TASK.json`; `busway pause` writes it."""

    paused: bool = False
    since: str | None = None
    by: str | None = None
    reason: str | None = None
    closed: bool = False
    """The source delivers nothing any more: batches that wait can be given back."""
    entity: str | None = None
    """CONNECTION/ENTITY of the source whose status `busway pause` changes; None if it changes none."""
    before: str | None = None
    """The status that `busway resume` gives back to it."""
