"""Every kind of verdict, planted and found: by the job, and by an oracle that shares no code with it."""

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from busway_reconcile.judge.verdicts import VERDICTS
from busway_reconcile.reconciliation import Result
from tests.jobs import twin
from tests.jobs.journals import KINDS, START, TASK, check, digest, of_task, planted
from tests.jobs.night import Gap, Night, joined
from tests.jobs.results import kinds, run, table, verdicts

pytestmark = pytest.mark.slow

HOURS = 4

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
    nameless = of_task("nameless")
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
