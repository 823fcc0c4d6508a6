"""What each kind of finding and of problem means, and what to do about it."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from busway_reconcile.judge.verdicts import UNDECIDED
from busway_reconcile.report.finding import Kind
from busway_reconcile.settings import Window
from busway_reconcile.summary import Summary


@dataclass(frozen=True)
class Advice:
    """
    What a kind of finding means, what to do, and a command that helps; some need no command.

    Shape:   *command* has places for `repair`, `table`, `task`, `entity`, `day` and `kind`.
    """

    meaning: str
    action: str
    command: str = ""


_DEAD_LETTERS = "/$DeadLetterQueue"

_LIST = "duckdb -c \"FROM {table} WHERE verdict = '{kind}'\""
_WHEN = (
    "duckdb -c \"SELECT task, date_trunc('minute', arrived_time) AS arrived, count(*) AS messages "
    "FROM {table} WHERE verdict = '{kind}' GROUP BY ALL ORDER BY ALL\""
)

_OF_MESSAGES = {
    "missing": Advice(
        "The message entered, nothing withheld it, and it did not arrive.",
        "Send the copies that still exist, before a dead-letter queue or an event hub drops them. The command shows "
        "what it would send; with --yes it sends.",
        "busway repair {repair}",
    ),
    "expired-unsent": Advice(
        "The time to live of the message ended before the task sent it: the target does not have it.",
        "Find the outage at that time: the task or its target was away for longer than the message lived. Then decide "
        "whether the receivers still want it. If so, the command shows which copies still exist, for example in the "
        "source's dead-letter queue; with --yes it sends them.",
        "busway repair {repair} --expired",
    ),
    "orphan": Advice(
        "The message arrived, but no record shows that it entered.",
        "Find out who else sends to the target. If nobody does, records of the source are lost: see the evidence.",
        _LIST,
    ),
    "looped": Advice(
        "The message came back to a site that it had left.",
        "Stop the task if it continues, then find the circle of tasks that no loop prevention cuts.",
        "busway check",
    ),
    "altered": Advice(
        "The message arrived with other content, and no editor changed it.",
        "Find out whether a rule, another sender or another version of the task changed it. The command shows what the "
        "task itself would change.",
        "busway try {task} --peek 10",
    ),
    "duplicated": Advice(
        "More copies of the message arrived than expected.",
        "A few at the time of a crash or an outage are normal: check that the receivers tolerate them. If there are "
        "many, use duplicate detection at the target. The command shows when they arrived.",
        _WHEN,
    ),
    "out_of_order": Advice(
        "The message arrived after a later message of its session or partition key.",
        "Sending again cannot restore the order: check that the receivers tolerate it, and look for a retry or a "
        "second sender at the times that the command shows.",
        _WHEN,
    ),
    "late": Advice(
        "The message arrived, but later than the limit allows.",
        "Nothing has to be repaired. Look for an outage, throttling or too few instances at the times that the command "
        "shows.",
        _WHEN,
    ),
    UNDECIDED: Advice(
        "The evidence is incomplete: it does not show whether the message arrived.",
        "Read the problems with the evidence below. When they are fixed, repeat the run.",
        "busway reconcile --date {day} --refreeze",
    ),
}

_OF_PROBLEMS = {
    "torn-file": "The writer was killed while it wrote, or a copy of the file is incomplete: "
    "check the app's log of that hour.",
    "empty-file": "Check the app's log of that hour, and whether a copy of the file failed.",
    "malformed-record": "Find out what else writes to the journal's folder.",
    "unknown-version": "Use the version of this job that belongs to the app.",
    "duplicated-file": "Nothing is counted twice. Find out what copies the journal's files.",
    "not-a-journal": "Move the file out of the journal's folder.",
    "journal-gap": "Find the outage of the journal's storage in these hours.",
    "not-captured": "Capture writes these events later: repeat the run with --refreeze when it has.",
    "side-missing": "Check the app's log of that hour for a journal that could not be written.",
    "silent-tap": "Check whether the tap runs, and start it again.",
    "clocks-disagree": "Check the clocks of the instances that wrote these records.",
    "future-records": "Set the clock of this instance. The records are counted in the runs of their hours.",
    "renamed-task": "If the tasks are two different ones, change the name of the new one.",
    "hour-open": "Repeat the run when these hours are over.",
    "not-reconciled": "Run the days before this one, the oldest first.",
    "changed-input": "Repeat the run that had counted that hour with --refreeze, then those that follow it.",
    "unreadable-summary": "Delete the folder of that run, and repeat the run.",
}


def advice_on(kind: Kind, summary: Summary) -> Advice:
    """Return the advice on *kind*, with the names of the run of *summary* and of the first message in its command."""
    found = _OF_MESSAGES.get(kind.verdict, Advice("docs/verdicts.md explains this kind.", "List the messages.", _LIST))
    first: Mapping[str, object] = kind.findings[0].row if kind.findings else {}
    entity = f"{first.get('src_site', 'SITE')}/{first.get('src_entity', 'ENTITY')}"
    table = summary.tables["explained" if kind.verdict == UNDECIDED else "findings"]
    command = found.command.format(
        repair=f"{summary.tables['missing'].removesuffix('missing')}repair.jsonl",
        table=f"'{table}/*.parquet'",
        task=shlex.quote(str(first.get("task", "TASK"))),
        entity=shlex.quote(entity if entity.endswith(_DEAD_LETTERS) else entity + _DEAD_LETTERS),
        day=summary.start[:10],
        kind=kind.verdict,
    )
    is_of_a_day = summary.run == Window.of_day(datetime.fromisoformat(summary.start).date()).run
    return Advice(found.meaning, found.action, command if is_of_a_day or "{day}" not in found.command else "")


def advice_on_problem(kind: str) -> str:
    """Return what to do about a problem with the evidence; an empty text for an unknown kind."""
    return _OF_PROBLEMS.get(kind, "")
