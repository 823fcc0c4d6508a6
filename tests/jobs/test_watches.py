"""From when to when a tap's word holds: what it was not there for it does not call missing."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.reconcile.evidence import TaskEvidence, watched
from jobs.reconcile.inputs import Problem
from jobs.reconcile.settings import Settings
from jobs.reconcile.watches import TAIL, Watch, all_watches, watches
from tests.jobs.journals import START, TARGET, TASK

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
END = START + 24 * HOUR


def task(sent, seen=None, count: int = 100):
    """Return a task that sent from and to *sent*, and whose tap wrote from and to *seen* (hours)."""
    one = TaskEvidence(TASK)
    if sent is not None:
        one.first_sent[TARGET], one.last_sent[TARGET] = (START + hour * HOUR for hour in sent)
        one.sent[TARGET] = count
    if seen is not None:
        one.first_seen[TARGET], one.last_seen[TARGET] = (START + hour * HOUR for hour in seen)
        one.target_taps[TARGET].add("watch")
    return one


def watch(one, before=None):
    return watches(one, {} if before is None else {TARGET: before}, END, Settings()).get(TARGET)


def before(last):
    return Watch(("watch",), START - 9 * HOUR, START + last * HOUR)


@pytest.mark.parametrize(
    ("one", "known", "since", "until", "is_new"),
    [
        (task((1, 20), (1, 20)), None, START + HOUR, None, False),
        (task((1, 20), (1.01, 19.99)), None, START + HOUR, None, False),
        (task((1, 20), (12, 20)), None, START + 12 * HOUR + MINUTE, None, True),
        (task((1, 20), (12, 20)), before(-1), START - 9 * HOUR, None, False),
        (task((1, 20), (1, 12)), None, START + HOUR, START + 12 * HOUR - MINUTE, False),
        (task(None, (1, 12)), None, START + HOUR, None, False),
    ],
    ids=["all day", "within a minute", "begins", "known before", "ends", "what others sent"],
)
def test_a_tap_is_there_from_its_first_record_to_its_last(one, known, since, until, is_new: bool) -> None:
    found = watch(one, known)
    assert (found.since, found.until, found.is_new) == (since, until, is_new)
    assert not found.is_absent


@pytest.mark.parametrize(
    ("one", "is_absent"),
    [
        (task((1, 20)), True),
        (task((1, 20), count=TAIL - 1), False),
        (task((23.5, 23.9)), False),
        (task(None), False),
    ],
    ids=["many", "a few", "just now", "none"],
)
def test_a_tap_that_told_nothing_of_many_messages_is_absent_and_is_not_forgotten(one, is_absent: bool) -> None:
    found = watch(one, before(-1))
    assert (found.taps, found.until, found.is_absent) == (("watch",), START - HOUR - MINUTE, is_absent)
    assert Watch.of(found.told()) == before(-1)
    # Until nothing is waited for any more.
    assert watch(one, before(24 - 7 * 24)) is not None
    assert watch(one, before(23 - 7 * 24)) is None


SILENT = f"its tap at {TARGET} wrote nothing in this window, and last at 2026-11-19 23:00:00; 100 were sent there, "


@pytest.mark.parametrize(
    ("one", "told", "looked_at"),
    [
        (task((1, 20)), [f"{SILENT}taken on the replicator's own word"], []),
        # A few may be its to tell tomorrow: they wait for it.
        (task((1, 20), count=2), [], [(TASK, "target", TARGET)]),
        (task(None), [], []),
        (None, [], []),
    ],
    ids=["many", "a few", "none", "no task"],
)
def test_a_tap_that_the_run_before_knew_is_missed_under_whatever_name_its_task_has(one, told, looked_at) -> None:
    run: Any = SimpleNamespace(renamed={"its-old-name": TASK}, settings=Settings(), problems=[], notes=[])
    previous: Any = SimpleNamespace(watches={"its-old-name": {TARGET: before(-1).told()}})
    tasks = {} if one is None else {TASK: one}
    found = all_watches(run, tasks, previous, END)
    assert run.problems == [Problem("silent-tap", TASK, text) for text in told]
    assert watched(tasks) == looked_at
    assert found[TASK][TARGET].told() == before(-1).told()
    assert run.notes == []
