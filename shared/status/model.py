"""
The status of an app's tasks, as `busway status --json` and the app's status API return it.

What is not known is null, with the reason in `unknown` under the name of the field; it is never 0.
docs/status.schema.json is generated from these types.
"""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

VERSION = 1


class State(StrEnum):
    """What a task does now."""

    RUNNING = "running"
    IDLE = "idle"
    PAUSED = "paused"
    HELD = "held"
    STOPPED = "stopped"
    UNKNOWN = "unknown"


ATTENTION = (State.STOPPED, State.HELD)

type Time = Annotated[str, Meta(description="ISO 8601, UTC")]


class Health(StrEnum):
    """The verdict on all tasks; the exit codes of `busway status` are 0, 1 and 2 in this order."""

    OK = "ok"
    ATTENTION = "attention"
    UNKNOWN = "unknown"


EXIT_CODES = {Health.OK: 0, Health.ATTENTION: 1, Health.UNKNOWN: 2}


class Place(Struct, frozen=True):
    """An entity at a site."""

    site: str
    entity: str

    def __str__(self) -> str:
        """Return SITE/ENTITY."""
        return f"{self.site}/{self.entity}"


class DeadLetters(Struct, frozen=True):
    """The dead letters of an entity; `messages` is null where they cannot be counted, for the reason in `unknown`."""

    place: Place
    messages: int | None = None
    is_minimum: bool = False
    unknown: str | None = None
    subscriptions: Annotated[
        dict[str, int], Meta(description="of a topic, by subscription: at most the 100 with the most")
    ] = {}


class Obstacle(Struct, frozen=True):
    """What batches wait for: a target or a store, and the error."""

    place: str
    kind: Annotated[str, Meta(description="unavailable: a retry can help; refused: a person must act")]
    reason: str
    since: Time


class RecentReject(Struct, frozen=True):
    """A rejected message, without its content; characters that a terminal would act on are escaped."""

    time: Time
    message_id: str | None
    reason: str


class Counts(Struct, frozen=True):
    """Messages of the last hour by outcome; `duplicates` came again after the target had accepted them."""

    sent: int = 0
    withheld: int = 0
    rejected: int = 0
    retried: int = 0
    duplicates: int = 0


class Point(Struct, frozen=True):
    """One minute of a chart; *lag* in seconds is the highest of the messages that were sent in it."""

    time: Time
    sent: int
    withheld: int
    rejected: int
    retried: int
    lag: float | None


class Findings(Struct, frozen=True):
    """What the last reconciliation found for a task: messages that need attention by verdict."""

    day: str
    findings: dict[str, int]


class Reconciliation(Struct, frozen=True):
    """The last reconciliation of all tasks, with the address of its page."""

    day: Annotated[str, Meta(description="2026-11-20, or of an hour 2026-11-20T07")]
    verdict: Annotated[str, Meta(description="clean, findings, could not decide")]
    sentence: str
    page: str


class LossRange(Struct, frozen=True):
    """Sequence numbers that are missing in a row, and between which times their messages were enqueued."""

    first: int
    last: int
    partition: Annotated[int | None, Meta(description="of an event hub")]
    after: Time
    before: Time
    found: Time


class Losses(Struct, frozen=True):
    """Messages that left the source without a record of the task, found in the last day."""

    messages: int
    sequence_numbers: Annotated[str, Meta(description="such as 17, 21-23; of a hub with their partitions")] = ""
    found: Annotated[Time | None, Meta(description="when the last of them were found")] = None
    ranges: Annotated[list[LossRange], Meta(description="the last of them, at most 20")] = []


class Heartbeat(Struct, frozen=True, kw_only=True):
    """The heartbeats of a route: the message that the app sends through it every so many seconds, to see it arrive."""

    route: Annotated[int, Meta(description="number of the route in the task, from 0")]
    target: Annotated[Place, Meta(description="where they go: the target, or an entity beside it that nobody reads")]
    every: Annotated[float, Meta(description="seconds from one to the next")]
    arrived: Annotated[
        Time | None, Meta(description="when the target last accepted one; null: none in the last day")
    ] = None
    latency: Annotated[float | None, Meta(description="seconds from the source to the target, of that one")] = None
    missed: Annotated[bool, Meta(description="none has arrived for three times as long; never of a paused task")] = (
        False
    )
    reason: Annotated[str | None, Meta(description="what is known about the one that is missed")] = None


class TaskStatus(Struct, kw_only=True):
    """One task: all its lanes and instances together."""

    task: str
    state: State
    reason: str | None = None
    remedy: Annotated[str | None, Meta(description="what to do, of a task that is held or stopped")] = None
    since: Time | None = None
    source: Place
    source_kind: Annotated[str, Meta(description="service-bus or event-hubs")]
    targets: list[Place]
    rejects: Place | None = None
    lanes: int = 1
    backlog: Annotated[int | None, Meta(description="messages that wait at the source, with those in progress")] = None
    backlog_is_minimum: Annotated[bool, Meta(description="there are at least that many")] = False
    lag: Annotated[float | None, Meta(description="age in seconds of the oldest message that is not yet carried")] = (
        None
    )
    lag_is_minimum: bool = False
    in_hand: Annotated[int | None, Meta(description="messages of batches in progress")] = None
    rate: Annotated[float | None, Meta(description="messages per second in the last minute")] = None
    last_hour: Counts | None = None
    obstacles: list[Obstacle] = []
    recent_rejects: list[RecentReject] = []
    dead_letters: list[DeadLetters] = []
    instances: Annotated[int | None, Meta(description="instances that report and have had messages of the task")] = None
    last_batch: Time | None = None
    heartbeat: Annotated[Time | None, Meta(description="the latest report of an instance")] = None
    journal_records_lost: int = 0
    losses: Annotated[Losses | None, Meta(description="null: the source is not watched, see unknown")] = None
    heartbeats: Annotated[list[Heartbeat], Meta(description="by route, if the task has any")] = []
    reconciliation: Findings | None = None
    unknown: Annotated[dict[str, str], Meta(description="by field: why it is null")] = {}


class SiteStatus(Struct, kw_only=True):
    """A namespace as far as it could be looked into; `reachable` is null if nothing was asked there."""

    site: str
    kind: str
    reachable: bool | None = None
    reason: str | None = None


class InstanceStatus(Struct, kw_only=True):
    """A process that runs the app, or ran it in the last day."""

    instance: str
    alive: bool
    started: Time
    reported: Annotated[Time, Meta(description="the last report, by the clock of the storage account")]
    clock_ahead: Annotated[float, Meta(description="seconds by which its clock is ahead of the storage account's")]
    app: str | None = None
    region: str | None = None
    version: str | None = None


class Status(Struct, kw_only=True):
    """The status of an app."""

    version: int = VERSION
    time: Time
    health: Health
    sentence: str
    tasks: list[TaskStatus]
    sites: list[SiteStatus]
    instances: Annotated[list[InstanceStatus] | None, Meta(description="null: nothing can be read, see unknown")]
    reconciliation: Annotated[Reconciliation | None, Meta(description="of the last night")] = None
    last_hour: Annotated[Reconciliation | None, Meta(description="of the last hour, if hours are reconciled")] = None
    notes: list[str] = []
    unknown: dict[str, str] = {}


class History(Struct, kw_only=True):
    """The charts of tasks: a point for each minute in which a task had messages."""

    version: int = VERSION
    first: Time
    last: Time
    tasks: dict[str, list[Point]]
    unknown: dict[str, str] = {}
