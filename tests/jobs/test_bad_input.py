"""Damaged journals: every problem is in the summary, none counts as clean, and none stops the run."""

import gzip
import json
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from busway_reconcile import __main__ as program
from busway_reconcile.journal.problems import EMPTY, Problem
from busway_reconcile.reconciliation import conclude
from busway_reconcile.settings import Settings
from busway_reconcile.summary import COULD_NOT_DECIDE, TaskSummary
from tests.jobs.journals import MINUTE, START, TASK, Journals, Record, of_task, planted
from tests.jobs.results import inputs, kinds, run, table

pytestmark = pytest.mark.slow


def files(folder: Path, role: str, task: str = TASK) -> list[Path]:
    return sorted((folder / "journal").glob(f"task={task}/date=*/hour=*/role={role}/*.jsonl.gz"))


def append(path: Path, record: Record) -> None:
    with path.open("ab") as file:
        file.write(gzip.compress((json.dumps(record) + "\n").encode()))


def spoil_files(folder: Path) -> None:
    """Write four hours of TASK, and damage its outcome files in every way that files can be damaged."""
    for hour in range(4):
        journals = Journals(instance=f"wn1-{hour}")
        journals.steady(hour * 100 + 1, START + timedelta(hours=hour)).write(folder / "journal")
    (first, second, third, fourth) = files(folder, "target")
    # Torn in the middle of its second member.
    extra = Journals(instance="wn1-0").steady(51, count=10)
    last = gzip.compress(
        "".join(json.dumps(record) + "\n" for _, record in extra.records if record["role"] == "target").encode()
    )
    first.write_bytes(first.read_bytes() + last[: len(last) // 2])
    append(second, {"v": 2, "task": TASK, "role": "target", "src_seq": "not a number any more"})
    with third.open("ab") as file:
        file.write(gzip.compress(b"{not json\n") + gzip.compress(b'{"v":1,"task":"half a record"}\n'))
    # A time in nanoseconds, and an invalid time on a message.
    record = extra.records[0][1]
    append(third, {**record, "role": "target", "outcome": "sent", "journal_time": 1000 * record["journal_time"]})
    append(files(folder, "source")[2], {**record, "enqueued_time": 2**63 - 1, "src_seq": 150, "batch_id": 900})
    # A copy that was made before the file was complete, in another hour and under another name.
    third.with_name(f"part-of-{fourth.name}").write_bytes(fourth.read_bytes())
    # A member that was appended twice.
    append(fourth, json.loads(gzip.decompress(fourth.read_bytes()).splitlines()[0]))
    shutil.copy(fourth, third.with_name(f"into-another-hour-{fourth.name}"))
    shutil.copy(fourth, first.with_name(fourth.name))
    shutil.copy(fourth, fourth.with_name(f"copy-of-{fourth.name}"))
    fourth.with_name("wn1-0.jsonl.gz").touch()
    (first.parent / "notes.txt").write_text("not a journal")
    (folder / "journal" / "marks").mkdir()
    (folder / "journal" / "marks" / "watch.json").write_text("{}")


def with_gaps() -> Journals:
    """Return the journal of 30 messages of a task that continued while its journal could not be written."""
    journals = of_task("lossy").steady()
    lost = {"source": {10, 11, 30}, "target": {20, 21, 30}}
    journals.records = [(at, each) for at, each in journals.records if each["src_seq"] not in lost[each["role"]]]
    for role, batches in lost.items():
        for batch_id in (min(batches), max(batches)):
            at = START + MINUTE * batch_id
            nowhere = dict.fromkeys(("src_seq", "send_ordinal", "target"))
            journals.outcome(0, at, "gap", role=role, batch_id=batch_id, reason="3 records", **nowhere)
    return journals


def observe_for_a_while(folder: Path) -> None:
    """Write tasks whose taps start, or stop, in the middle: messages that they cannot have seen are not missing."""
    for name, observed_hours in (("begins", (2, 3)), ("ends", (0, 1))):
        tapped = of_task(name)
        for number in range(12):
            at = START + 15 * number * MINUTE
            tapped.carried(number, at)
            if number // 4 in observed_hours:
                tapped.arrived_tap(number, at, at)
        tapped.write(folder)


def test_every_problem_is_reported_in_one_run_and_decides_nothing(spark: SparkSession, tmp_path: Path) -> None:
    spoil_files(tmp_path)
    for task, garbage in (("text", b"this is no gzip at all"), ("header", b"\x1f\x8b\x08\x00")):
        of_task(task).steady().write(tmp_path / "journal")
        (target,) = files(tmp_path, "target", task)
        target.write_bytes(garbage)
    for gone in ("target", "source"):
        of_task(f"no-{gone}").steady().write(tmp_path / "journal")
        for path in files(tmp_path, gone, f"no-{gone}"):
            path.unlink()
    ahead = of_task("clock-ahead")
    for seq in range(1, 30):
        at = START + MINUTE * seq
        ahead.carried(seq, at + timedelta(minutes=5), at)
    ahead.write(tmp_path / "journal")
    silent, _ = planted(["delivered"] * 100, taps=True, hours=2, task="silent")
    silent.records = [
        (written, record)
        for written, record in silent.records
        if record.get("tap") != "watch-target" or written < START + 15 * MINUTE
    ]
    silent.write(tmp_path / "journal")
    observe_for_a_while(tmp_path / "journal")
    with_gaps().write(tmp_path / "journal")

    result = run(spark, tmp_path)
    assert kinds(result) == [
        "clocks-disagree", "duplicated-file", "empty-file", "journal-gap", "malformed-record", "not-a-journal",
        "side-missing", "silent-tap", "torn-file", "unknown-version",
    ]  # fmt: skip
    assert result.exit_code == COULD_NOT_DECIDE
    by_task = {task.task: task.verdicts for task in result.summary.tasks}
    assert by_task[TASK] == {"delivered": 120, "undecided": 1}  # the message with the invalid time has no outcome
    assert all(by_task[task] == {"undecided": 30} for task in ("text", "header", "no-target", "no-source"))
    assert by_task["clock-ahead"] == {"delivered": 29}
    assert by_task["lossy"] == {"delivered": 25, "undecided": 4}
    assert set(by_task["silent"]) == {"delivered", "undecided"}
    assert by_task["silent"]["undecided"] > 20
    assert (by_task["begins"], by_task["ends"]) == ({"undecided": 8, "delivered": 4}, {"undecided": 4, "delivered": 8})
    (note,) = [note for note in result.summary.notes if note.startswith("begins: ")]
    assert note.startswith("begins: its tap at east/begins is new; messages sent there before 2026-11-20 02:01:01 ")
    # The next run waits for what a tap may still see; no run can decide a message that no tap can have seen.
    assert {row["task"] for row in table(result, "open")} >= {"silent", "ends"}
    assert "begins" not in {row["task"] for row in table(result, "open")}
    assert table(result, "findings") == []
    assert {row["verdict"] for row in table(result, "explained")} == {"undecided"}

    named = {
        kind: [problem for problem in result.summary.problems if problem["kind"] == kind] for kind in kinds(result)
    }
    assert {each["task"] for each in named["torn-file"]} == {TASK, "text", "header"}
    assert "cut short after 1 whole members" in " ".join(each["text"] for each in named["torn-file"])
    assert [each["text"] for each in named["unknown-version"]] == ["1 records of version 2, expected 1"]
    assert {(each["task"], each["role"]) for each in named["side-missing"]} == {
        ("no-target", "target"), ("no-source", "source"), ("text", "target"), ("header", "target"),
    }  # fmt: skip
    assert [each["task"] for each in named["clocks-disagree"]] == ["clock-ahead"]
    assert "300.0 s before" in named["clocks-disagree"][0]["text"]
    assert [each["where"] for each in named["silent-tap"]] == ["silent"]
    hour = "2026-11-20T00"
    assert {(each["where"], each["role"], *each["hours"]) for each in named["journal-gap"]} == {
        (f"lossy, {hour}", "source", hour), (f"lossy, {hour}", "target", hour),
    }  # fmt: skip
    assert any("twice" in note for note in result.summary.notes)
    assert sorted(each["where"].rpartition("/hour=")[2].partition("-")[0] for each in named["duplicated-file"]) == [
        "00/role=target/wn1", "02/role=target/into", "02/role=target/part", "03/role=target/copy",
    ]  # fmt: skip
    assert [each["where"].rpartition("/")[2] for each in named["empty-file"]] == ["wn1-0.jsonl.gz"]
    assert sum(int(each["text"].split()[0]) for each in named["malformed-record"]) == 3


def test_an_hour_that_is_still_being_written_is_reported_and_not_counted(spark: SparkSession, tmp_path: Path) -> None:
    Journals().steady(hours=2).write(tmp_path / "journal")
    now = START + timedelta(hours=2)
    result = run(spark, tmp_path, hours=2, now=now)
    assert kinds(result) == ["hour-open"]
    assert "1 of 2 hours" in result.summary.problems[0]["text"]
    assert result.summary.counts == {"delivered": 15}
    assert result.exit_code == 2
    # The next run reports the hours that no run has counted.
    after = inputs(spark, tmp_path, start=now, hours=1)
    assert [(problem.kind, problem.where) for problem in after.problems_of_previous] == [
        ("not-reconciled", (START + timedelta(hours=1)).isoformat())
    ]
    stopped = Settings(writers_stopped=True, grace=timedelta(0))
    assert run(spark, tmp_path, hours=2, now=now, settings=stopped).summary.counts == {"delivered": 30}
    # Repeated when the hours are over, the run reads them, and late files of the other hours: it was not final.
    Journals(instance="wn2-1").steady(501, count=10, hours=2).write(tmp_path / "journal", name="wn2")
    again = inputs(spark, tmp_path, hours=2)
    assert again.problems == []
    assert sum(hour.records for hour in again.hours.values()) == 2 * 40


@pytest.mark.parametrize("messages", [0, 5])
def test_a_problem_is_never_clean(messages: int) -> None:
    task = TaskSummary(TASK, [], [], "", [], None, None, verdicts={"delivered": messages} if messages else {})
    problem = Problem("any", "anywhere", "some text")
    assert conclude([task], [])[0] == 0
    assert conclude([task], [problem])[0] == COULD_NOT_DECIDE
    assert conclude([task], [problem._replace(kind=EMPTY)])[0] == 0
    task.verdicts["repaired"] = 2
    repaired = f"{messages + 2} messages, all accounted for, 2 repaired."
    assert conclude([task], []) == (0, "clean", repaired)
    task.verdicts["missing"] = 1
    assert conclude([task], [problem])[:2] == (1, "findings")
    assert "1 problem with the evidence" in conclude([task], [problem])[2]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--journal", "there-is-no-such-journal"], "No journal has a record of these hours."),
        (["--journal", "nowhere://journal"], "Exception: No FileSystem for scheme"),
        (["--journal", "https://account.invalid/"], "JournalUnreachable: account.invalid: the URL names no container"),
        (["--journal", ".", "--end", "2026-11-19T00"], "expected the start to be before the end"),
    ],
    ids=["no such folder", "no such file system", "no container", "no such window"],
)
def test_an_error_of_the_program_is_printed_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    window = ["--start", "2026-11-20T00", "--end", "2026-11-20T02"]
    places = ["--out", str(tmp_path / "out"), "--staging", str(tmp_path / "staging")]
    assert program.main([*window, *places, *arguments]) == COULD_NOT_DECIDE
    assert text in capsys.readouterr().out


@pytest.mark.parametrize("cores", ["0", "-1", "two", ""])
def test_a_wrong_number_of_cores_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cores: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        program.main([f"--journal={tmp_path}", f"--out={tmp_path / 'out'}", f"--cores={cores}"])
    assert ended.value.code == COULD_NOT_DECIDE
    assert "expected a number of cores, or * for all" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
