"""Merges the reports of instances with a look into the entities: one status per task. Pure; time is an argument."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from shared.losses.report import Found as Loss
from shared.losses.report import WatchState, text_of
from shared.message.waiting import PartitionEnd, Waiting
from shared.printable import printable
from shared.remedies import remedy_for
from shared.status.facts import Look, TaskPlaces
from shared.status.heartbeats import OWNERSHIP_SECONDS, Seen, heartbeats
from shared.status.model import (
    ATTENTION,
    Counts,
    InstanceStatus,
    Losses,
    LossRange,
    Obstacle,
    Point,
    RecentReject,
    State,
    TaskStatus,
)
from shared.status.report import MOST_REJECTS, Control, Minute, TaskReport
from shared.status.store import Found, FoundHour, Reports
from shared.status.times import iso, milliseconds, moment

PATIENCE_SECONDS = 60.0
"""How long messages may wait before a task that takes none counts as stopped."""
_ACTIVE = timedelta(seconds=60)
_MINUTES_OF_AN_HOUR = 60
_WATCH_MILLISECONDS = 600_000
_DAY_MILLISECONDS = 86_400_000
_MOST_RANGES = 20
NO_INSTANCE = "no instance reports"


def instance_status(found: Found, now: datetime) -> InstanceStatus:
    """Return what is known of an instance."""
    report = found.report
    ahead = found.ahead / 1000
    return InstanceStatus(
        instance=report.instance,
        alive=found.is_alive(now),
        started=iso(moment(report.started)),
        reported=iso(found.written),
        clock_ahead=round(ahead, 1),
        app=report.app,
        region=report.region,
        version=report.busway,
    )


def task_status(
    places: TaskPlaces, look: Look, reports: Reports | str, history: Sequence[FoundHour], now: datetime
) -> TaskStatus:
    """
    Return the status of one task.

    *reports* is the reason if they cannot be read; *now* is the time of the storage account, or else of the reader.
    """
    status = TaskStatus(
        task=places.task,
        state=State.UNKNOWN,
        source=places.source,
        source_kind=places.source_kind,
        targets=list(places.targets),
        rejects=places.rejects,
        lanes=places.lanes,
        dead_letters=list(look.dead_letters),
        unknown={},
    )
    seen: list[Seen[TaskReport]] = []
    if isinstance(reports, str):
        status.unknown |= dict.fromkeys(
            ("in_hand", "rate", "last_hour", "instances", "last_batch", "heartbeat"), reports
        )
    else:
        seen = [
            Seen(report, found, found.is_alive(now))
            for found in reports.instances
            for report in found.report.tasks
            if report.task == places.task
        ]
        _add_reports(status, seen, reports, history, now)
    misplaced = _add_source(status, look, seen, now)
    control = None if isinstance(reports, str) else reports.controls.get(places.task)
    is_paused = control is not None and control.paused
    if places.heartbeats:
        _add_heartbeats(status, places, seen, reports, now, is_paused=is_paused)
    if control is not None and is_paused:
        _pause(status, control)
    elif misplaced is not None:
        _set(status, State.STOPPED, misplaced)
    else:
        patience = OWNERSHIP_SECONDS if places.is_hub else PATIENCE_SECONDS
        _decide(status, look, seen, reports, now, patience=patience)
    return status


def losses(state: WatchState | None, now: datetime, *, is_hub: bool) -> Losses | str:
    """Return the losses of the last day, or why they are not known."""
    if state is None:
        return "no instance watches the source for losses"
    time = milliseconds(now)
    if time - state.looked > _WATCH_MILLISECONDS:
        return f"the source has not been watched for losses since {iso(moment(state.looked))}"
    found = [loss for loss in state.losses() if time - loss.loss.found < _DAY_MILLISECONDS]
    return Losses(
        sum(each.loss.count - each.loss.scheduled for each in found),
        text_of(found, is_hub=is_hub),
        iso(moment(max(each.loss.found for each in found))) if found else None,
        [_range(each, is_hub=is_hub) for each in sorted(found, key=lambda each: each.loss.found)[-_MOST_RANGES:]],
    )


def _range(found: Loss, *, is_hub: bool) -> LossRange:
    times = (iso(moment(time)) for time in (found.loss.after, found.loss.before, found.loss.found))
    return LossRange(found.loss.first, found.loss.last, found.part if is_hub else None, *times)


def points(history: Iterable[FoundHour], reports: Reports | None, task: str, first: int, last: int) -> list[Point]:
    """Return the chart of a task from minute *first* to *last*."""
    return [
        Point(
            iso(datetime.fromtimestamp(minute.minute * 60, UTC)),
            minute.sent,
            minute.withheld,
            minute.rejected,
            minute.retried,
            None if minute.lag is None else round(minute.lag / 1000, 3),
        )
        for minute in _minutes(history, reports, task)
        if first <= minute.minute <= last
    ]


def _add_reports(
    status: TaskStatus, seen: Sequence[Seen[TaskReport]], reports: Reports, history: Sequence[FoundHour], now: datetime
) -> None:
    alive = [each for each in seen if each.is_alive]
    running = [found for found in reports.instances if found.is_alive(now)]
    # One that only sends or takes heartbeats has had no message.
    status.instances = sum(not each.report.has_only_heartbeats for each in alive)
    status.in_hand = sum(each.report.in_hand for each in alive)
    status.rate = round(sum(each.report.rate for each in alive), 2)
    status.journal_records_lost = sum(each.report.unwritten for each in alive)
    heartbeats = [each.found.written for each in seen] or [found.written for found in running]
    status.heartbeat = iso(max(heartbeats)) if heartbeats else None
    if not heartbeats:
        status.unknown["heartbeat"] = "no instance has reported in the last day"
    batches = [each.time(each.report.last_batch) for each in seen if each.report.last_batch is not None]
    status.last_batch = iso(max(batches)) if batches else None
    if not batches:
        status.unknown["last_batch"] = "no instance that has reported in the last day has had a message of this task"
    minute = int(now.timestamp()) // 60
    hour = [each for each in _minutes(history, reports, status.task) if minute - each.minute < _MINUTES_OF_AN_HOUR]
    status.last_hour = Counts(
        sum(minute.sent for minute in hour),
        sum(minute.withheld for minute in hour),
        sum(minute.rejected for minute in hour),
        sum(minute.retried for minute in hour),
        sum(minute.duplicates for minute in hour),
    )
    obstacles: dict[str, Obstacle] = {}
    for each in alive:
        for outage in each.report.outages:
            since = iso(each.time(outage.since))
            known = obstacles.get(outage.place)
            if known is None or since < known.since:
                obstacles[outage.place] = Obstacle(outage.place, outage.kind, outage.text, since)
    status.obstacles = [obstacles[place] for place in sorted(obstacles)]
    rejects = [
        RecentReject(iso(each.time(reject.time)), reject.message_id, reject.reason)
        for each in seen
        for reject in each.report.rejects
    ]
    status.recent_rejects = sorted(rejects, key=lambda reject: reject.time, reverse=True)[:MOST_REJECTS]


def _add_heartbeats(
    status: TaskStatus,
    places: TaskPlaces,
    seen: Sequence[Seen[TaskReport]],
    reports: Reports | str,
    now: datetime,
    *,
    is_paused: bool,
) -> None:
    if isinstance(reports, str):
        status.unknown["heartbeats"] = reports
        return
    started = [moment(found.report.started - found.ahead) for found in reports.instances if found.is_alive(now)]
    routes = [Seen(route, each.found, each.is_alive) for each in seen for route in each.report.heartbeats]
    if not started and not routes:
        status.unknown["heartbeats"] = NO_INSTANCE
        return
    status.heartbeats = heartbeats(places, routes, min(started, default=None), now, is_paused=is_paused)


def _minutes(history: Iterable[FoundHour], reports: Reports | None, task: str) -> list[Minute]:
    """Return the minutes of a task over all instances."""
    by_instance: dict[tuple[str, int], Minute] = {}
    for hour in history:
        by_instance |= {(hour.name, minute.minute): minute for minute in hour.report.minutes.get(task, ())}
    for found in () if reports is None else reports.instances:
        for report in found.report.tasks:
            if report.task == task:
                # A report is never older than the history that the instance wrote before it.
                by_instance |= {(found.name, minute.minute): minute for minute in report.minutes}
    total: dict[int, Minute] = {}
    for (_, number), minute in by_instance.items():
        total[number] = minute if number not in total else total[number].plus(minute)
    return [total[number] for number in sorted(total)]


def _add_source(status: TaskStatus, look: Look, seen: Sequence[Seen[TaskReport]], now: datetime) -> str | None:
    """Add what waits at the source; return why the positions of a hub are not of this hub, None if they may be."""
    source = look.source
    if isinstance(source, str):
        status.unknown |= {"backlog": source, "lag": source}
    elif isinstance(source, Waiting):
        status.backlog, status.backlog_is_minimum = source.messages, source.is_minimum
        if source.messages == 0:
            status.lag = 0.0
        elif source.oldest is None:
            status.unknown["lag"] = f"{status.source}: the first messages have no readable enqueued time"
        else:
            status.lag = _age(source.oldest, now)
    else:
        return _add_partitions(status, source, seen, now)
    return None


def _add_partitions(
    status: TaskStatus, ends: Mapping[str, PartitionEnd], seen: Sequence[Seen[TaskReport]], now: datetime
) -> str | None:
    """Add the backlog of a hub: what follows the last settled number of each partition."""
    positions: dict[str, int] = {}
    for each in seen:
        for partition, number in each.report.positions.items():
            positions[partition] = max(number, positions.get(partition, number))
    ahead = sorted(name for name, end in ends.items() if positions.get(name, -1) > end.last)
    if ahead:
        # The service refuses to read there until the hub has passed the position; what came before is never read.
        name = ahead[0]
        place = f"partition {name} has been read to sequence number {positions[name]}, and ends at {ends[name].last}"
        text = "the hub was created again, or its namespace has failed over; `busway checkpoints` shows and resets it"
        status.unknown |= dict.fromkeys(("backlog", "lag"), "the positions of the app are those of an earlier hub")
        return f"{place}: {text}"
    unknown = sorted(name for name, end in ends.items() if not end.is_empty and name not in positions)
    if unknown:
        reason = f"no instance has reported how far it has read partition {', '.join(unknown)}"
        status.unknown |= {"backlog": reason, "lag": reason}
        return None
    behind = {
        name: end.last - max(positions[name], end.first - 1)
        for name, end in ends.items()
        if not end.is_empty and end.last > positions[name]
    }
    status.backlog = sum(behind.values())
    if not status.backlog:
        status.lag = 0.0
        return None
    # Events of a partition are taken in their order, so that the oldest is in progress if anything is.
    taken = [(each, each.report.oldest_in_hand) for each in seen if each.is_alive]
    in_hand = [each.time(oldest) for each, oldest in taken if oldest is not None]
    last = [end.last_enqueued for name in behind if (end := ends[name]).last_enqueued is not None]
    ages = [(now - time).total_seconds() for time in in_hand] + [_age(time, now) for time in last]
    if ages:
        status.lag = round(max(0.0, *ages), 3)
        # Without a batch in progress only the age of the last event is known.
        status.lag_is_minimum = not in_hand and status.backlog > len(behind)
    else:
        status.unknown["lag"] = f"{status.source}: its events have no enqueued time"
    return None


def _pause(status: TaskStatus, control: Control) -> None:
    by = f" by {control.by}" if control.by else ""
    why = f": {control.reason}" if control.reason else ""
    _set(status, State.PAUSED, printable(f"paused{by}{why}"), control.since)


def _decide(
    status: TaskStatus,
    look: Look,
    seen: Sequence[Seen[TaskReport]],
    reports: Reports | str,
    now: datetime,
    *,
    patience: float,
) -> None:
    alive = [each for each in seen if each.is_alive]
    has_work = bool(status.in_hand) or status.backlog != 0
    failing = [each for each in alive if each.report.error is not None]
    if look.is_source_refused and isinstance(look.source, str):
        _set(status, State.STOPPED, look.source)
    elif status.obstacles and has_work:
        worst = min(status.obstacles, key=lambda obstacle: (obstacle.kind != "refused", obstacle.since))
        _set(status, State.HELD, worst.reason, worst.since)
    elif failing and has_work:
        first = min(failing, key=lambda each: each.report.error_since or 0)
        since = first.report.error_since
        _set(status, State.STOPPED, first.report.error or "", None if since is None else iso(first.time(since)))
    elif status.in_hand or _is_recent(status.last_batch, now):
        _set(status, State.RUNNING)
    elif isinstance(reports, str):
        _set(status, State.UNKNOWN, reports)
    else:
        _decide_without_batches(status, reports, now, patience)


def _decide_without_batches(status: TaskStatus, reports: Reports, now: datetime, patience: float) -> None:
    is_served = any(found.is_alive(now) for found in reports.instances)
    if status.backlog == 0:
        _set(status, State.IDLE, None if is_served else f"nothing waits, and {NO_INSTANCE}")
    elif status.backlog is None:
        if is_served and "backlog" in status.unknown:
            _set(status, State.IDLE, "no messages in the last minute; what waits at the source is unknown")
        else:
            _set(status, State.UNKNOWN, f"{NO_INSTANCE}, and what waits at the source is unknown")
    elif status.lag is not None and status.lag <= patience:
        _set(status, State.IDLE, "messages wait, and no instance has taken them yet")
    else:
        who = "no instance has taken a message" if is_served else NO_INSTANCE
        when = f" since {status.last_batch if is_served else status.heartbeat}"
        text = f"messages wait, and {who}{when if (status.last_batch if is_served else status.heartbeat) else ''}"
        _set(status, State.STOPPED, text, status.last_batch if is_served else status.heartbeat)


def _set(status: TaskStatus, state: State, reason: str | None = None, since: str | None = None) -> None:
    status.state, status.reason, status.since = state, reason, since
    if state in ATTENTION and reason is not None:
        status.remedy = remedy_for(reason).of(status.task)


def _is_recent(time: str | None, now: datetime) -> bool:
    return time is not None and now - datetime.fromisoformat(time) <= _ACTIVE


def _age(number: int, now: datetime) -> float:
    # The clock of the service may be ahead.
    return round(max((now - moment(number)).total_seconds(), 0.0), 3)
