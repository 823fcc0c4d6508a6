"""Every kind of verdict, planted and found: by the job, and by an oracle that shares nothing with it."""

from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.jobs import twin
from tests.jobs.journals import KINDS, START, TASK, planted
from tests.jobs.results import run, table, verdicts

HOURS = 4


def told_by_twin(journal):
    database = twin.connect()
    twin.judge(database, raw=journal, end=START + timedelta(hours=HOURS))
    rows = database.execute("select task, src_seq, verdict from verdicts where verdict <> 'delivered'").fetchall()
    return {(task, seq): verdict for task, seq, verdict in rows}


def not_delivered(plan, task=TASK):
    return {(task, seq): verdict for seq, verdict in plan.items() if verdict != "delivered"}


@pytest.mark.parametrize("taps", [True, False], ids=["with taps", "without taps"])
def test_all_that_was_planted_is_found_and_nothing_else(spark, tmp_path, taps):
    kinds = [*KINDS, *["delivered"] * 130] * 4
    journals, plan = planted(kinds, taps=taps, seed=7)
    journals.write(tmp_path / "journal")
    result = run(spark, tmp_path)
    assert verdicts(result) == not_delivered(plan)
    assert told_by_twin(tmp_path / "journal") == not_delivered(plan)
    assert result.exit_code == 1
    assert result.summary.problems == []
    task = next(each for each in result.summary.tasks if each.task == TASK)
    assert task.evidence == ("taps at both sides" if taps else "replicator's own")
    assert task.verdicts["delivered"] == list(plan.values()).count("delivered")
    assert sum(task.verdicts.values()) == len(plan)
    assert task.entered + task.verdicts["orphan"] == len(plan)
    assert result.summary.inputs["clean_buckets"] > 0 or taps


def test_a_finding_can_be_traced_and_repaired(spark, tmp_path):
    journals, _ = planted(["missing", "delivered", "delivered"], taps=False)
    journals.write(tmp_path / "journal")
    result = run(spark, tmp_path)
    (missing,) = table(result, "missing")
    assert (missing["src_site"], missing["src_entity"], missing["src_part"], missing["src_seq"]) == (
        "west", "orders/Subscriptions/replication", 0, 1,
    )  # fmt: skip
    assert missing["message_id"] == "m-1"
    assert missing["body_size"] == 100
    assert [row["outcome"] for row in table(result, "evidence")] == ["received"]


def test_a_clean_night_looks_at_no_message_and_ends_with_0(spark, tmp_path):
    journals, _ = planted(["delivered"] * 20 + ["filtered"] * 5, taps=True)
    journals.write(tmp_path / "journal")
    result = run(spark, tmp_path)
    assert result.exit_code == 0
    assert result.summary.verdict == "clean"
    assert result.summary.counts == {"delivered": 20, "filtered": 5}
    assert result.summary.inputs["messages_looked_at"] == 0


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    nights=st.lists(
        st.tuples(st.booleans(), st.lists(st.sampled_from([*KINDS, "delivered"]), min_size=1, max_size=12)),
        min_size=12,
        max_size=20,
    ),
    seed=st.integers(0, 1000),
)
def test_both_agree_about_whatever_happens(spark, tmp_path_factory, nights, seed):
    folder = tmp_path_factory.mktemp("nights")
    expected: dict[tuple[str, int], str] = {}
    for number, (taps, kinds) in enumerate(nights):
        task = f"task-{number}"
        journals, plan = planted(kinds, taps=taps, seed=seed + number, task=task)
        # Every hour has both sides, as a task that is awake has.
        filler, _ = planted(["delivered"] * 40, taps=taps, task=task, seed=seed)
        for written, record in filler.records:
            if record["task"] == task and record.get("src_seq") is not None:
                moved = record | {"src_seq": record["src_seq"] + 10_000, "message_id": f"f-{record['src_seq']}",
                                  "order_key": None, "batch_id": record["batch_id"] + 10_000}  # fmt: skip
                if "tgt_seq" in moved:
                    moved["tgt_seq"] += 10_000
                journals.records.append((written, {name: value for name, value in moved.items() if value is not None}))
        journals.write(folder / "journal")
        expected |= not_delivered(plan, task)
    result = run(spark, folder)
    assert verdicts(result) == expected
    assert told_by_twin(folder / "journal") == expected
