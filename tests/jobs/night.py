"""A run over everything that is planted, with the verdicts to expect: what takes time is its plan, not its records."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import SparkSession

from busway_reconcile.reconciliation import Result
from tests.jobs.hidden_losses import WRITERS, Plan
from tests.jobs.journals import (
    HOUR,
    KINDS,
    PLAIN_KINDS,
    START,
    TASK,
    Journals,
    Record,
    content_of,
    digest,
    of_task,
    passed_on,
    planted,
)
from tests.jobs.results import run

MISSING = 20
"""How many messages of TASK are missing: more than the page shows."""
LOOPED = 1 + PLAIN_KINDS.index("looped")
"""The number of a message of TASK that has EVIL for its id."""
EVIL = "<script>alert(1)</script>"

Gap = tuple[str, str, datetime]
"""Task, side and hour."""


def joined(numbers: Iterable[int]) -> Journals:
    """Return a task that joins every four messages of *numbers* into the first one, and the tap that sees it."""
    journals = of_task("joined")
    envelope = {"body_digest": digest("envelope"), "property_digest": digest("none", 8)}
    for nth, seq in enumerate(numbers):
        at = START + 10 * timedelta(minutes=nth - nth % 4 + 1)
        is_first = nth % 4 == 0
        more: Record = {"check": None, "edited": True, "send_ordinal": nth % 4, "joined": None if is_first else True}
        journals.received(seq, at, at)
        journals.outcome(seq, at, **envelope | more)
        if is_first:
            journals.arrived_tap(seq, at, at, **envelope)
    return journals


def handed_over(folder: Path) -> dict[str, dict[int, str]]:
    """Write a task that asks its host to send, and the task of its source's dead-letter queue."""
    journals = of_task("handed")
    dead = Journals(task="spill-handed", entity=f"{journals.entity}/$DeadLetterQueue", target="east/spilled")
    for seq in range(1, 9):
        at = START + 10 * timedelta(minutes=seq)
        parts = [0, 1] if seq in (6, 7) else [None]
        for attempt in range(2 if seq in (4, 5, 6) else 1):
            again = at + timedelta(seconds=40 * attempt)
            journals.received(seq, at, again, parts=2 if len(parts) > 1 else None)
            for part in parts:
                # Of one message one part was not handed over, and of another nothing is on record.
                if (seq, part) != (7, 1) and seq != 8:
                    journals.outcome(seq, again, handed_over=True, part=part)
        if seq == 5:
            dead.received(500_005, at, at + HOUR / 2, message_id="m-5", given_up_by=journals.entity, **content_of(5))
            dead.outcome(500_005, at + HOUR / 2, **passed_on(content_of(5)))
    journals.write(folder)
    dead.write(folder, name="wn3")
    plan = dict.fromkeys(range(1, 9), "delivered") | {5: "spilled", 7: "missing", 8: "missing"}
    return {"handed": plan, "spill-handed": {500_005: "delivered"}}


def replayed(folder: Path) -> dict[str, dict[int, str]]:
    """Write the task of a replay, whose second copy was lost."""
    task = f"{TASK}~20261123T080000Z"
    journals = Journals(task=task, entity="replayed", target="east/replayed")
    for seq in range(1, 4):
        journals.received(seq, START, START + HOUR, repair=True, instance="laptop-1")
        if seq != 2:
            journals.outcome(seq, START + HOUR, repair=True, instance="laptop-1")
    journals.write(folder, name="wn4")
    return {task: {1: "replayed", 2: "missing", 3: "replayed"}}


def two_tasks_to_one_target(folder: Path) -> dict[str, dict[int, str]]:
    """Write two tasks of one site, and the tap of one at their common target, which sees the copies of both."""
    one = Journals(task="all-orders", entity="all-orders", target="east/all")
    other = Journals(task="all-returns", entity="all-returns", target="east/all", instance="wn2-1")
    for nth in range(8):
        at = START + 10 * timedelta(minutes=nth + 1)
        for journals, seq in ((other, 1000 + nth), (one, 1 + nth)):
            # Of one session, so that the numbers of both go up and down.
            journals.carried(seq, at, order_key="both")
            if seq != 5:
                one.arrived_tap(seq, at, at, order_key="both")
    one.arrived_tap(99, START + HOUR, START + HOUR)
    one.write(folder)
    other.write(folder, name="wn2")
    plan = dict.fromkeys(range(1, 9), "delivered") | {5: "missing", 99: "orphan"}
    return {"all-orders": plan, "all-returns": dict.fromkeys(range(1000, 1008), "delivered")}


class Night(NamedTuple):
    """What was planted, and what the run has found."""

    journal: Path
    out: Path
    plans: Mapping[str, Mapping[int, str]]
    kinds: Mapping[tuple[str, int], str]
    gaps: Sequence[Gap]
    hidden: Plan
    result: Result


def night_of(spark: SparkSession, folder: Path) -> Night:
    """Plant everything in *folder*, and run the job."""
    journal = folder / "journal"
    plans: dict[str, Mapping[int, str]] = {}
    planted_as: dict[tuple[str, int], str] = {}
    gaps: list[Gap] = []
    for taps in (True, False):
        name = "tapped" if taps else "own-word"
        everything = [*KINDS, *["delivered"] * 40] * 2
        journals, plans[name] = planted(everything, taps=taps, seed=7, task=name)
        journals.write(journal)
        planted_as |= {(name, seq): kind for seq, kind in journals.kinds.items()}
        for role in ("source", "target"):
            # An hour without one of its files: the messages that only this file would decide are undecided.
            torn = f"{name}-no-{role}"
            journals, plan = planted(["delivered"] * 20, taps=taps, task=torn)
            for path in journals.write(journal):
                if "hour=01" in str(path) and f"role={role}" in str(path):
                    path.unlink()
            of_hour = {record["src_seq"] for at, record in journals.records if START + HOUR <= at < START + 2 * HOUR}
            plans[torn] = {seq: "undecided" if seq in of_hour else verdict for seq, verdict in plan.items()}
            gaps.append((torn, role, START + HOUR))
    plans |= two_tasks_to_one_target(journal)
    plans |= handed_over(journal)
    plans |= replayed(journal)
    journals, plans[TASK] = planted([*PLAIN_KINDS, *["missing"] * (MISSING - 1), *["delivered"] * 20], taps=True)
    for _, record in journals.records:
        if record.get("src_seq") == LOOPED and record["task"] == TASK:
            record["message_id"] = EVIL
    journals.write(journal)
    together = joined(range(1, 9))
    together.received(10, START + HOUR / 2, START + HOUR / 2)
    together.write(journal)
    plans["joined"] = dict.fromkeys(range(1, 9), "delivered") | {10: "missing"}
    hidden: dict[str, Mapping[int, str]] = {}
    for write in WRITERS:
        hidden |= write(journal)
    return Night(journal, folder / "out", plans, planted_as, gaps, hidden, run(spark, folder))
