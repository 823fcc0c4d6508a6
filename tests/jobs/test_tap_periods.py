"""The periods in which taps observed their targets: a message sent before or after is not missing."""

from datetime import datetime

import pytest

from busway_reconcile.journal.problems import Problem
from busway_reconcile.judge.tap_periods import (
    SILENT_AFTER,
    TapPeriod,
    earlier_periods,
    observed_periods,
    task_periods,
)
from busway_reconcile.judge.tasks import TaskActivity, tapped_sides
from busway_reconcile.settings import Settings
from tests.jobs.journals import HOUR, MINUTE, START, TARGET, TASK

END = START + 24 * HOUR

Between = tuple[float, float]
"""Hours since START."""


def task(sent: Between | None, seen: Between | None = None, count: int = 100) -> TaskActivity:
    """Return a task that sent during *sent*, and whose tap wrote during *seen*."""
    one = TaskActivity(TASK)
    if sent is not None:
        one.first_sent[TARGET], one.last_sent[TARGET] = (START + hour * HOUR for hour in sent)
        one.sent[TARGET] = count
    if seen is not None:
        one.first_seen[TARGET], one.last_seen[TARGET] = (START + hour * HOUR for hour in seen)
        one.target_taps[TARGET].add("watch")
    return one


def period(one: TaskActivity, known: TapPeriod | None = None) -> TapPeriod | None:
    return task_periods(one, {} if known is None else {TARGET: known}, END, Settings()).get(TARGET)


def before(last: float) -> TapPeriod:
    return TapPeriod(("watch",), START - 9 * HOUR, START + last * HOUR)


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
    ids=["all day", "within a minute", "starts", "known before", "stops", "what others sent"],
)
def test_a_period_lasts_from_the_first_record_of_a_tap_to_its_last(
    one: TaskActivity, known: TapPeriod | None, since: datetime, until: datetime | None, is_new: bool
) -> None:
    found = period(one, known)
    assert found is not None
    assert (found.since, found.until, found.is_new) == (since, until, is_new)
    assert not found.is_absent


@pytest.mark.parametrize(
    ("one", "is_absent"),
    [
        (task((1, 20)), True),
        (task((1, 20), count=SILENT_AFTER - 1), False),
        (task((23.5, 23.9)), False),
        (task(None), False),
    ],
    ids=["many", "a few", "just now", "none"],
)
def test_a_tap_without_a_record_of_many_messages_is_absent_and_stays_known(one: TaskActivity, is_absent: bool) -> None:
    found = period(one, before(-1))
    assert found is not None
    assert (found.taps, found.until, found.is_absent) == (("watch",), START - HOUR - MINUTE, is_absent)
    assert TapPeriod.from_dict(found.to_dict()) == before(-1)
    # Until no open message waits for it.
    assert period(one, before(24 - 7 * 24)) is not None
    assert period(one, before(23 - 7 * 24)) is None


SILENT = (
    f"its tap at {TARGET} has no record in this window; its last one was at 2026-11-19 23:00:00. "
    "100 messages were sent there: their verdicts rely on the replicator's own journal"
)


@pytest.mark.parametrize(
    ("one", "texts", "tapped"),
    [
        (task((1, 20)), [SILENT], []),
        # The tap may still see a few messages: they wait for the next run.
        (task((1, 20), count=2), [], [(TASK, "target", TARGET)]),
        (task(None), [], []),
        (None, [], []),
    ],
    ids=["many", "a few", "none", "no task"],
)
def test_a_tap_of_the_previous_run_is_expected_also_after_its_task_was_renamed(
    one: TaskActivity | None, texts: list[str], tapped: list[tuple[str, str, str | None]]
) -> None:
    known = earlier_periods({"its-old-name": {TARGET: before(-1).to_dict()}}, {"its-old-name": TASK})
    found = observed_periods({} if one is None else {TASK: one}, known, END, Settings())
    assert found.problems == [Problem("silent-tap", TASK, text) for text in texts]
    assert tapped_sides(found.tasks) == tapped
    assert found.periods[TASK][TARGET].to_dict() == before(-1).to_dict()
    assert found.notes == []


def test_a_tap_that_was_removed_on_purpose_is_not_reported_unless_it_has_records() -> None:
    settings = Settings(removed_taps=(f"{TASK}={TARGET}",))
    known = {TASK: {TARGET: before(-1)}}
    found = observed_periods({TASK: task((1, 20))}, known, END, settings)
    assert (found.problems, tapped_sides(found.tasks)) == ([], [])
    assert [note for note in found.notes if "removed on purpose" in note]
    # Open messages that it did not see still rely on it; the next run knows that it was removed.
    kept = found.periods[TASK][TARGET]
    assert (kept.is_removed, kept.is_absent, kept.until) == (True, False, START - HOUR - MINUTE)
    later = observed_periods(
        {TASK: task((1, 20))}, {TASK: {TARGET: TapPeriod.from_dict(kept.to_dict())}}, END, Settings()
    )
    assert (later.problems, later.notes, tapped_sides(later.tasks)) == ([], [], [])
    again = period(task((1, 20), (12, 20)), kept)
    assert again is not None
    assert (again.since, again.is_new, again.is_removed) == (START + 12 * HOUR + MINUTE, True, False)
    seen = observed_periods({TASK: task((1, 20), (1, 20))}, known, END, settings)
    assert (list(seen.periods[TASK]), seen.notes) == ([TARGET], [])
    assert not seen.periods[TASK][TARGET].is_removed
