"""A status with every state, hostile names and many tasks, and its history."""

from datetime import UTC, datetime, timedelta

from shared.remedies import remedy_for
from shared.status.model import (
    Counts,
    DeadLetters,
    Findings,
    Health,
    Heartbeat,
    History,
    InstanceStatus,
    Losses,
    LossRange,
    Obstacle,
    Place,
    Point,
    RecentReject,
    Reconciliation,
    SiteStatus,
    State,
    Status,
    TaskStatus,
)

NOW = datetime(2026, 11, 23, 10, 30, tzinfo=UTC)
HOSTILE = (
    "<script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "\"><svg onload='window.hacked = 1'>",
    "${7 * 7}",
    r"\u202etxt.exe\x1b[31m",
    "x" * 260,
)
TIME = "%Y-%m-%dT%H:%M:%SZ"


def sample_status(
    idle: int = 3, busy: int = 0, *, page: str = "https://account.blob.core.windows.net/reconciliation/report.html"
) -> Status:
    """Return a status with a task of each state, some that are idle, and some that run as they should."""
    held = _task("payments-west-to-east", State.HELD, backlog=1204, lag=312.0, in_hand=100, rate=0.0)
    held.reason = "east/payments: the target refuses to take messages, it is disabled: " + HOSTILE[0]
    held.remedy = remedy_for(held.reason).of(held.task)
    held.since = (NOW - timedelta(minutes=5)).strftime(TIME)
    held.obstacles = [Obstacle("east/payments", "refused", held.reason, held.since)]
    held.recent_rejects = [RecentReject(NOW.strftime(TIME), name, f"too large {name}") for name in HOSTILE]
    held.dead_letters = [
        DeadLetters(Place("west", HOSTILE[1]), 3),
        DeadLetters(Place("east", "payments"), unknown=HOSTILE[2]),
    ]
    times = [(NOW - timedelta(minutes=minutes)).strftime(TIME) for minutes in (62, 55, 50)]
    ranges = [LossRange(17, 17, None, times[0], times[1], times[2]), LossRange(21, 23, None, *times)]
    held.losses = Losses(4, "17, 21-23", times[2], ranges)
    place = Place("east", HOSTILE[1])
    held.heartbeats = [
        Heartbeat(route=0, target=place, every=60.0, missed=True, reason=HOSTILE[0]),
        Heartbeat(route=1, target=place, every=60.0, arrived=NOW.strftime(TIME), latency=0.2),
    ]
    held.reconciliation = Findings("2026-11-22", {"missing": 2, HOSTILE[0]: 1})
    unknown = _task("telemetry-north-to-east", State.UNKNOWN, "north", backlog=None, lag=None, rate=None)
    unknown.unknown = {"backlog": "north/orders: does not answer", "lag": HOSTILE[1]}
    unknown.reason = "north/orders: does not answer"
    tasks = [
        _task("orders-east-to-west", State.RUNNING, "east", "west", backlog=12, lag=0.4, rate=118.2),
        _task("orders-west-to-east", State.RUNNING, rate=121.0, backlog=0, lag=0.0),
        held,
        _task("audit-west-to-north", State.PAUSED, "west", "north", backlog=7, lag=7200.0, reason="paused by ops"),
        unknown,
        *(
            _task(f"busy-{number:03}-west-to-east", State.RUNNING, backlog=1, lag=0.1, rate=9.0)
            for number in range(busy)
        ),
        *(_task(f"plant-{number:03}-west-to-east", State.IDLE, backlog=0, lag=0.0) for number in range(idle)),
    ]
    return Status(
        time=NOW.strftime(TIME),
        health=Health.ATTENTION,
        sentence=f"1 of {len(tasks)} tasks needs attention: payments-west-to-east is held.",
        tasks=tasks,
        sites=[
            SiteStatus(site="west", kind="service-bus", reachable=True),
            SiteStatus(site="east", kind="service-bus", reachable=True),
            SiteStatus(site="north", kind="service-bus", reachable=False, reason="north/orders: does not answer"),
        ],
        instances=[
            InstanceStatus(
                instance=HOSTILE[0], alive=True, started=NOW.strftime(TIME), reported=NOW.strftime(TIME),
                clock_ahead=0.1, app="busway-west", region="West Europe", version="0.2.0",
            )
        ],
        reconciliation=Reconciliation("2026-11-22", "findings", f"2 messages are missing {HOSTILE[0]}", page),
        last_hour=Reconciliation("2026-11-23T09", "clean", "412 messages, all accounted for.", page),
        notes=[HOSTILE[1]],
    )  # fmt: skip


def sample_history(status: Status, hours: int = 3) -> History:
    """Return three hours, in which the last minutes of a held task are empty."""
    first = NOW - timedelta(hours=hours)
    points = [
        Point(
            (first + timedelta(minutes=minute)).strftime(TIME),
            900 + minute % 50 * 20,
            3,
            minute % 40 // 39,
            0,
            0.2 + minute % 30 / 50,
        )
        for minute in range(1, hours * 60 - 6)
    ]
    return History(
        first=(first + timedelta(minutes=1)).strftime(TIME),
        last=NOW.strftime(TIME),
        tasks={task.task: points if task.state in (State.RUNNING, State.HELD) else [] for task in status.tasks},
    )


def _task(name: str, state: State, source: str = "west", target: str = "east", **figures: object) -> TaskStatus:
    entity = name.partition("-")[0]
    found = TaskStatus(
        task=name, state=state, source=Place(source, f"{entity}/Subscriptions/replication"), source_kind="service-bus",
        targets=[Place(target, entity)], rejects=Place(source, f"{entity}-rejected"), in_hand=0, rate=0.0,
        last_hour=Counts(54_000, 120, 0 if name.startswith("busy") else 3, 0, 2)
        if state in (State.RUNNING, State.HELD)
        else Counts(),
        dead_letters=[DeadLetters(Place(source, entity), 0)], instances=1, last_batch=NOW.strftime(TIME),
        heartbeat=NOW.strftime(TIME), losses=Losses(0), unknown={},
    )  # fmt: skip
    for field, value in figures.items():
        setattr(found, field, value)
    return found
