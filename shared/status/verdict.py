"""The verdict on all tasks: how an operator reads the status in one sentence."""

from collections import Counter
from collections.abc import Sequence

from shared.status.model import ATTENTION, Health, State, TaskStatus

_MOST_NAMED = 3


def verdict(tasks: Sequence[TaskStatus], unknown: Sequence[str] = ()) -> tuple[Health, str]:
    """Return the health of *tasks* and a sentence about it; *unknown* has reasons why the status is not complete."""
    states = Counter(task.state for task in tasks)
    troubled = [task for task in tasks if task.state in ATTENTION or _lost(task) or has_missed(task)]
    if troubled:
        named = ", ".join(map(_trouble, troubled[:_MOST_NAMED]))
        more = f" and {len(troubled) - _MOST_NAMED} more" if len(troubled) > _MOST_NAMED else ""
        return Health.ATTENTION, f"{len(troubled)} of {_tasks(len(tasks))} {_need(troubled)} attention: {named}{more}."
    undecided = [task for task in tasks if task.state is State.UNKNOWN]
    if undecided:
        text = f"The state of {len(undecided)} of {_tasks(len(tasks))} is unknown: {undecided[0].reason}."
        return Health.UNKNOWN, text
    if unknown:
        return Health.UNKNOWN, f"No task is known to need attention, but not everything is known: {unknown[0]}."
    return Health.OK, f"{_summary(states, len(tasks))}; {_lag(tasks)}."


def has_missed(task: TaskStatus) -> bool:
    """Return whether a route of *task* misses its heartbeats."""
    return any(heartbeat.missed for heartbeat in task.heartbeats)


def _lost(task: TaskStatus) -> int:
    return 0 if task.losses is None else task.losses.messages


def _trouble(task: TaskStatus) -> str:
    parts = [f"{task.task} is {task.state}"] if task.state in ATTENTION else []
    parts += [f"{task.task} misses heartbeats"] if has_missed(task) else []
    lost = _lost(task)
    if lost:
        parts.append(f"{lost:,} {'message' if lost == 1 else 'messages'} of {task.task} left its source unrecorded")
    return " and ".join(parts)


def _summary(states: Counter[State], total: int) -> str:
    parts = [f"{states[state]} {state}" for state in (State.RUNNING, State.IDLE, State.PAUSED) if states[state]]
    return f"{_tasks(total)}: {', '.join(parts) or 'none'}"


def _lag(tasks: Sequence[TaskStatus]) -> str:
    waiting = [task for task in tasks if task.backlog]
    lags = [task.lag for task in waiting if task.lag is not None]
    if not waiting:
        return "nothing waits"
    count = sum(task.backlog or 0 for task in waiting)
    least = "at least " if any(task.backlog_is_minimum for task in waiting) else ""
    text = f"{least}{count:,} {'message waits' if count == 1 else 'messages wait'}"
    return text + (f", the oldest for {duration(max(lags))}" if lags else "")


def _tasks(count: int) -> str:
    return f"{count} task{'' if count == 1 else 's'}"


def _need(tasks: Sequence[TaskStatus]) -> str:
    return "needs" if len(tasks) == 1 else "need"


_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"))


def duration(seconds: float) -> str:
    """Return *seconds* in the unit that suits, such as 0.4 s, 12 s, 5 min or 3.2 h."""
    for size, name in _UNITS:
        if seconds >= size:
            number = seconds / size
            return f"{number:.1f} {name}" if number < 10 and name != "min" else f"{number:.0f} {name}"  # noqa: PLR2004 - a digit more
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004 - likewise
