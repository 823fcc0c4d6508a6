"""The status as text: a sentence, a table that fits the terminal, and the reasons below it."""

import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime

import typer

from shared.printable import printable
from shared.status.model import DeadLetters, State, Status, TaskStatus
from shared.status.verdict import duration, has_missed

# Fields of a task that the table has.
_SHOWN = ("backlog", "lag", "rate", "last_hour")
_HEADINGS = ("state", "waiting", "lag", "per s", "dead", "rejected")
_WIDTHS = (8, 8, 9, 7, 6, 8)
_GAP = 1
_NARROWEST = 14
_MOST_IDLE = 20
_EXACT, _MILLIONS = 10_000, 1_000_000
_MOST_NAMED = 3
_MOST_HEARTBEATS = 4
_UNKNOWN = "?"
_COLORS = {
    State.HELD: "red",
    State.STOPPED: "red",
    State.UNKNOWN: "yellow",
    State.PAUSED: "yellow",
    State.RUNNING: "green",
}
_ORDER = (State.STOPPED, State.HELD, State.UNKNOWN, State.PAUSED, State.RUNNING, State.IDLE)


def status_text(status: Status, width: int, *, everything: bool, has_color: bool) -> str:
    """Return *status* as lines of at most *width* characters; idle tasks are counted if there are many."""
    return "\n".join(_lines(status, width, everything=everything, has_color=has_color))


def _lines(status: Status, width: int, *, everything: bool, has_color: bool) -> Iterator[str]:
    yield from textwrap.wrap(printable(status.sentence), width, break_on_hyphens=False, break_long_words=False)
    yield ""
    tasks = sorted(status.tasks, key=lambda task: (_ORDER.index(task.state), -(task.backlog or 0), task.task))
    quiet = [] if everything or len(tasks) <= _MOST_IDLE else [task for task in tasks if _is_quiet(task)]
    shown = [task for task in tasks if task not in quiet]
    longest = max((len(task.task) for task in shown), default=_NARROWEST)
    room = width - sum(_WIDTHS) - _GAP * len(_WIDTHS)
    name_width = max(min(longest, room), min(_NARROWEST, room), 4)
    yield _row("task", _HEADINGS, name_width).rstrip()
    for task in shown:
        name = task.task if len(task.task) <= name_width else f"{task.task[: name_width - 1]}…"
        line, color = _row(name, _cells(task), name_width).rstrip(), _COLORS.get(task.state)
        yield typer.style(line, fg=color) if has_color and color is not None else line
    if quiet:
        yield f"and {len(quiet)} idle tasks with nothing to report (--all shows them)"
    yield from _reasons(status, tasks, width, everything=everything)


def _row(name: str, cells: Sequence[str], name_width: int) -> str:
    state, *numbers = cells
    padded = [f"{cell:>{size}}" for cell, size in zip(numbers, _WIDTHS[1:], strict=True)]
    return (" " * _GAP).join([f"{name:<{name_width}}", f"{state:<{_WIDTHS[0]}}", *padded])


def _cells(task: TaskStatus) -> tuple[str, ...]:
    waiting = _UNKNOWN if task.backlog is None else _count(task.backlog, is_minimum=task.backlog_is_minimum)
    lag = _UNKNOWN if task.lag is None else ("≥ " if task.lag_is_minimum else "") + duration(task.lag)
    if task.backlog == 0:
        lag = "-"
    rate = (
        _UNKNOWN
        if task.rate is None
        else "-"
        if not task.rate
        else f"{task.rate:,.1f}"
        if task.rate < _EXACT
        else _count(round(task.rate))
    )
    rejected = _UNKNOWN if task.last_hour is None else _count(task.last_hour.rejected)
    return task.state.value, waiting, lag, rate, _dead(task.dead_letters), rejected


def _dead(entities: Sequence[DeadLetters]) -> str:
    known = [entity.messages for entity in entities if entity.messages is not None]
    if entities and not known:
        return _UNKNOWN
    is_minimum = any(entity.is_minimum or entity.messages is None for entity in entities)
    return _count(sum(known), is_minimum=is_minimum) if known else "-"


def _count(number: int, *, is_minimum: bool = False) -> str:
    """Return a number in at most six characters, with a plus if there are at least that many."""
    text = f"{number:,}"
    if number >= _EXACT:
        text = f"{number / 1000:.0f}k" if number < _MILLIONS else f"{number / 1_000_000:.1f}M"
    return f"{text}+" if is_minimum else text


def _is_quiet(task: TaskStatus) -> bool:
    dead = any(dead_letter.messages for dead_letter in task.dead_letters)
    return (
        task.state is State.IDLE
        and task.backlog == 0
        and not dead
        and not (task.last_hour and task.last_hour.rejected)
        and not has_missed(task)
    )


def _reasons(status: Status, tasks: Sequence[TaskStatus], width: int, *, everything: bool) -> Iterator[str]:
    general = set(status.unknown.values())
    alike: dict[tuple[State, str], list[TaskStatus]] = {}
    for task in tasks:
        if task.reason and task.state not in (State.RUNNING, State.IDLE) and task.reason not in general:
            alike.setdefault((task.state, task.reason), []).append(task)
    blocks = []
    for (state, reason), same in alike.items():
        more = f" and {len(same) - _MOST_NAMED} more" if len(same) > _MOST_NAMED else ""
        names = ", ".join(task.task for task in same[:_MOST_NAMED]) + more
        blocks.append(f"{names} {'is' if len(same) == 1 else 'are'} {state}{_since(same, status)}: {reason}")
        if same[0].remedy is not None:
            blocks.append(f"  What to do: {same[0].remedy}. More: busway docs alert-{state}")
    blocks += [
        f"{task.task} lost {task.losses.messages:,}, found at {task.losses.found}: "
        f"sequence numbers {task.losses.sequence_numbers} (busway docs losses)"
        for task in tasks
        if task.losses is not None and task.losses.messages
    ]
    blocks += _heartbeats(tasks, status, everything=everything)
    by_reason: dict[str, list[str]] = {}
    for task in tasks:
        reasons = [task.unknown[field] for field in _SHOWN if field in task.unknown]
        reasons += [dead.unknown for dead in task.dead_letters if dead.unknown]
        for reason in dict.fromkeys(reasons):
            by_reason.setdefault(reason, []).append(task.task)
    blocks += [f"unknown: {reason}" for name, reason in status.unknown.items() if name != "reconciliation"]
    blocks += [
        f"unknown of {names[0] if len(names) == 1 else f'{len(names)} tasks'}: {reason}"
        for reason, names in by_reason.items()
        if reason not in general and reason not in {why for _, why in alike}
    ]
    for what, found in (("last reconciliation", status.reconciliation), ("last hour", status.last_hour)):
        if found is not None:
            blocks.append(f"{what}, {found.day}: {found.verdict}. {found.sentence} {found.page}")
    blocks += status.notes
    if blocks:
        yield ""
    for block in blocks:
        indent = "    " if block.startswith(" ") else "  "
        yield from textwrap.wrap(
            printable(block), width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
        )


def _heartbeats(tasks: Sequence[TaskStatus], status: Status, *, everything: bool) -> Iterator[str]:
    """Yield each route that misses heartbeats, and how long the others take."""
    arriving = []
    for task in tasks:
        for heartbeat in task.heartbeats:
            if heartbeat.missed:
                when = "no heartbeat has"
                if heartbeat.arrived is not None:
                    passed = datetime.fromisoformat(status.time) - datetime.fromisoformat(heartbeat.arrived)
                    when = f"for {duration(max(passed.total_seconds(), 0.0))} {when}"
                often = f"one every {duration(heartbeat.every)}"
                yield f"{task.task} misses heartbeats: {when} reached {heartbeat.target} ({often}): {heartbeat.reason}"
            elif heartbeat.arrived is not None and heartbeat.latency is not None and task.state is not State.PAUSED:
                arriving.append((heartbeat.latency, f"{task.task} to {heartbeat.target} {_latency(heartbeat.latency)}"))
    if not arriving:
        return
    if everything or len(arriving) <= _MOST_HEARTBEATS:
        yield f"last heartbeats: {', '.join(text for _, text in arriving)}"
    else:
        fastest, slowest = min(arriving)[0], max(arriving)
        yield f"last heartbeats of {len(arriving)} routes: {_latency(fastest)} to {_latency(slowest[0])} ({slowest[1]})"


def _latency(seconds: float) -> str:
    return duration(seconds) if seconds >= 1 else f"{round(seconds * 1000)} ms"


def _since(tasks: Sequence[TaskStatus], status: Status) -> str:
    times = [task.since for task in tasks if task.since is not None]
    if not times:
        return ""
    try:
        seconds = (datetime.fromisoformat(status.time) - min(map(datetime.fromisoformat, times))).total_seconds()
    except (ValueError, TypeError):
        return f" since {times[0]}"  # a time that somebody wrote by hand
    return f" for {duration(max(seconds, 0.0))}"
