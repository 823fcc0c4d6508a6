"""Every kind of verdict, planted and found: by the job, and by an oracle that shares no code with it."""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from busway_reconcile.judge.verdicts import VERDICTS
from busway_reconcile.reconciliation import Result
from tests.jobs import twin
from tests.jobs.hidden_losses import WRITERS, Plan
from tests.jobs.journals import (
    KINDS,
    START,
    TASK,
    Journals,
    Record,
    check,
    content_of,
    digest,
    passed_on,
    planted,
)
from tests.jobs.results import kinds, run, table, verdicts

pytestmark = pytest.mark.slow

HOURS = 4
HOUR = timedelta(hours=1)
Gap = tuple[str, str, datetime]
"""Task, side and hour."""

Oracle = dict[tuple[str, int | None], tuple[str, int, int]]
"""Verdict, copies and expected copies, by task and sequence number."""

COUNTED_ONLY = {"filtered", "rejected", "expired", "stopped"}
"""Verdicts that are only counted where the messages around them are clean."""


def oracle_verdicts(journal: Path, gaps: Iterable[Gap] = ()) -> Oracle:
    database = twin.connect()
    twin.judge(database, raw=journal, end=START + timedelta(hours=HOURS), gaps=gaps)
    rows = database.execute("select task, src_seq, verdict, copies, expected from verdicts").fetchall()
    return {(task, seq): (verdict, copies, expected) for task, seq, verdict, copies, expected in rows}


def assert_found(
    result: Result, plans: Mapping[str, Mapping[int, str]], oracle: Oracle, *, but: Collection[str] = ()
) -> None:
    """
    Assert that *result* and the *oracle* have every message of *plans* (by task), with its verdict, and no other.

    Tasks that are in *but* are left out.
    """
    oracle = {key: found for key, found in oracle.items() if key[0] not in but}
    planned: dict[tuple[str, int | None], str] = {
        (task, seq): verdict for task, plan in plans.items() for seq, verdict in plan.items()
    }
    wrong = {key: verdict for key, verdict in planned.items() if verdict != "delivered"}
    found = {key: verdict for key, verdict in verdicts(result).items() if key[0] not in but}
    assert {key: verdict for key, verdict in found.items() if wrong.get(key) != verdict} == {}
    assert {verdict for key, verdict in wrong.items() if key not in found} <= COUNTED_ONLY
    assert {key: verdict for key, (verdict, _, _) in oracle.items() if key in planned} == planned
    assert all(verdict == "delivered" for key, (verdict, _, _) in oracle.items() if key not in planned)
    for row in table(result, "findings"):
        if row["task"] in but:
            continue
        assert (row["copies"], row["expected"]) == oracle[row["task"], row["src_seq"]][1:], row
    counted = {task.task: task for task in result.summary.tasks if task.task not in but}
    for task, plan in plans.items():
        found_of_task = counted.pop(task)
        assert found_of_task.verdicts == Counter(plan.values())
        assert found_of_task.entered + found_of_task.verdicts.get("orphan", 0) == len(plan)
        assert (found_of_task.carried, found_of_task.reopened) == (0, 0)
    # The others are the tasks of dead-letter queues, which send the spilled messages.
    assert all(summary.verdicts == {"delivered": summary.entered} for summary in counted.values())


def joined(numbers: Iterable[int]) -> Journals:
    """Return a task that joins every four messages of *numbers* into the first one, and the tap that sees it."""
    journals = Journals(task="joined", entity="joined/Subscriptions/replication", target="east/joined")
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
    journals = Journals(task="handed", entity="handed/Subscriptions/replication", target="east/handed")
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
    """A run over everything that is planted; what takes time is planning it, not its records."""

    journal: Path
    plans: Mapping[str, Mapping[int, str]]
    kinds: Mapping[tuple[str, int], str]
    gaps: Sequence[Gap]
    hidden: Plan
    result: Result


@pytest.fixture(scope="module")
def night(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Night:
    folder = tmp_path_factory.mktemp("verdicts")
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
    together = joined(range(1, 9))
    together.received(10, START + HOUR / 2, START + HOUR / 2)
    together.write(journal)
    plans["joined"] = dict.fromkeys(range(1, 9), "delivered") | {10: "missing"}
    hidden: dict[str, Mapping[int, str]] = {}
    for write in WRITERS:
        hidden |= write(journal)
    return Night(journal, plans, planted_as, gaps, hidden, run(spark, folder))


@pytest.mark.always
def test_a_loss_that_other_records_seem_to_explain_is_found(night: Night) -> None:
    planned = {(task, seq): verdict for task, plan in night.hidden.items() for seq, verdict in plan.items()}
    found = {key: verdict for key, verdict in verdicts(night.result).items() if key[0] in night.hidden}
    assert found == planned
    assert [row["src_part"] for row in table(night.result, "missing") if row["task"] == "from-hub"] == [0]
    [again] = [task for task in night.result.summary.tasks if task.task == "numbers-again"]
    assert 400 < again.lag_milliseconds["p50"] < 600
    assert again.lag_milliseconds["max"] < 1_100
    assert sum(hour["messages"] for hour in again.lag_by_hour) == 24


@pytest.mark.always
def test_every_planted_message_is_found_and_no_other(night: Night) -> None:
    plans, planted_as, gaps, result = night.plans, night.kinds, night.gaps, night.result
    assert_found(result, plans, oracle_verdicts(night.journal, gaps), but=night.hidden)
    assert set(result.summary.counts) == set(VERDICTS)
    assert result.exit_code == 1
    assert kinds(result) == ["clocks-disagree", "side-missing"]
    found = {(problem["kind"], problem["task"]) for problem in result.summary.problems}
    ahead = {("clocks-disagree", task) for task in ("tapped", "own-word")}
    assert found == {("side-missing", task) for task, _, _ in gaps} | ahead
    evidence = {task.task: task.evidence for task in result.summary.tasks}
    assert evidence["handed"] == "replicator's own; the target's answers to the host are not on record"
    assert (evidence["tapped"], evidence["own-word"]) == ("taps at both sides", "replicator's own")

    rows = {(row["task"], row["src_seq"]): row for row in table(result, "findings")}
    by_kind = {kind: [rows[key] for key in planted_as if planted_as[key] == kind and key in rows] for kind in KINDS}
    assert [row["altered"] for row in by_kind["altered"]] == ["body", "body", "content", "content"]
    assert [row["altered"] for row in by_kind["altered_property"]] == ["property", "property", "content", "content"]
    assert {(row["copies"], row["expected"]) for row in by_kind["duplicated"]} == {(2, 1)}
    assert {(row["copies"], row["expected"]) for row in by_kind["tripled"]} == {(3, 1)}
    assert {(row["copies"], row["expected"]) for row in by_kind["part_missing"]} == {(2, 3)}
    assert all(row["lag_milliseconds"] > 24 * 60_000 for row in by_kind["late"])

    # A finding can be traced, and repaired.
    missing = [row for row in table(result, "missing") if row["task"] == "own-word"]
    assert {row["src_seq"] for row in missing} == {seq for seq, each in plans["own-word"].items() if each == "missing"}
    one = missing[0]
    assert (one["src_site"], one["src_entity"]) == ("west", "own-word/Subscriptions/replication")
    assert (one["message_id"], one["body_size"]) == (f"m-{one['src_seq']}", 100)
    trace = [
        row["outcome"]
        for row in table(result, "evidence")
        if (row["task"], row["src_seq"]) == ("own-word", one["src_seq"])
    ]
    assert trace == ["received"]


@pytest.fixture
def _other_time_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process whose clock shows the time of New York."""
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_other_time_zone")
def test_a_clean_day_judges_no_message_by_itself_and_exits_with_0_in_any_time_zone(
    spark: SparkSession, tmp_path: Path
) -> None:
    journals, _ = planted(["delivered"] * 20 + ["filtered"] * 5, taps=True)
    journals.write(tmp_path / "journal")
    # A tap with numbers of its own and messages without ids, which are matched by content and order.
    nameless = Journals(task="nameless", entity="nameless/Subscriptions/replication", target="east/nameless")
    for seq, text in ((11, "one"), (12, "other"), (13, "one")):
        at = START + 20 * timedelta(minutes=seq - 10)
        body, properties = digest(text), digest(text, 8)
        message = {"message_id": None, "body_digest": body, "property_digest": properties}
        nameless.entered_tap(seq, at, at, **message | {"src_seq": None, "tgt_seq": seq + 700})
        nameless.received(seq, at + timedelta(milliseconds=3), at, **message)
        nameless.outcome(seq, at, check=check(body, properties))
    nameless.write(tmp_path / "journal")
    joined(range(1, 9)).write(tmp_path / "journal")
    result = run(spark, tmp_path)
    assert result.exit_code == 0
    assert result.summary.verdict == "clean"
    assert result.summary.counts == {"delivered": 20 + HOURS + 3 + 8, "filtered": 5}
    assert result.summary.inputs["messages_looked_at"] == 0
    written = sorted(at for at, record in journals.records if record["observer"] == "task")
    task = next(task for task in result.summary.tasks if task.task == TASK)
    assert (task.first, task.last) == (written[0].isoformat(), written[-1].isoformat())


@settings(
    max_examples=2,
    # One example is the nights of twenty tasks; to make it smaller would take as many runs as there are messages.
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    nights=st.lists(
        st.tuples(st.booleans(), st.lists(st.sampled_from([*KINDS, "delivered"]), min_size=1, max_size=12)),
        min_size=20,
        max_size=20,
    ),
    seed=st.integers(0, 1000),
)
def test_the_job_and_the_oracle_agree(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, nights: list[tuple[bool, list[str]]], seed: int
) -> None:
    folder = tmp_path_factory.mktemp("nights")
    plans: dict[str, dict[int, str]] = {}
    for number, (taps, night) in enumerate(nights):
        task = f"task-{number}"
        # The message of another task with the same id and content would confirm a forged path.
        journals, plans[task] = planted(night, taps=taps, seed=seed + number, task=task, offset=10_000 * number)
        journals.write(folder / "journal")
    assert_found(run(spark, folder), plans, oracle_verdicts(folder / "journal"))
