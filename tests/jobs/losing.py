"""Journals of tasks from which records are missing."""

from datetime import timedelta

from tests.jobs.journals import AWAKE, START, Journals

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
AT = START + 20 * MINUTE


def of_task(task: str, instance: str = "wn1-1") -> Journals:
    return Journals(task=task, entity=f"{task}/Subscriptions/replication", target=f"east/{task}", instance=instance)


def running(journals: Journals, *, hours: int = 4, since: int = 0, is_seen: bool = False) -> Journals:
    """Return *journals* with a message in each hour, which the tap at the target sees if *is_seen*."""
    for hour in range(since, hours):
        at = START + hour * HOUR + MINUTE
        journals.carried(AWAKE + hour, at, after=SECOND)
        if is_seen:
            journals.arrived_tap(AWAKE + hour, at, at + SECOND)
    return journals
