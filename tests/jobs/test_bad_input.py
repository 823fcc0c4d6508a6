"""What journals look like after a bad night: named in the summary, never counted as clean, never a crash."""

import gzip
import json
import shutil
from datetime import timedelta

import pytest

from jobs.reconcile.raw import whole_members
from jobs.reconcile.settings import Settings
from tests.jobs.journals import START, TASK, Journals, planted
from tests.jobs.results import kinds, run, table, verdicts

MINUTE = timedelta(minutes=1)
WITHOUT_GRACE = Settings(grace=timedelta(0))


def steady(journals, first=1, count=30, start=START, hours=1):
    for number in range(count):
        at = start + timedelta(hours=hours) / count * number
        journals.received(first + number, at, at + timedelta(seconds=1))
        journals.outcome(first + number, at + timedelta(seconds=2))
    return journals


def files(folder, role):
    return sorted((folder / "journal").glob(f"task=*/date=*/hour=*/role={role}/*.jsonl.gz"))


def append(path, record):
    with path.open("ab") as file:
        file.write(gzip.compress((json.dumps(record) + "\n").encode()))


def test_all_that_can_be_wrong_with_files_is_named_in_one_run(spark, tmp_path):
    for hour in range(4):
        steady(Journals(instance=f"wn1-{hour}"), hour * 100 + 1, start=START + timedelta(hours=hour)).write(
            tmp_path / "journal"
        )
    (first, second, third, fourth) = files(tmp_path, "target")
    # Torn in the middle of its second member.
    extra = Journals(instance="wn1-0")
    steady(extra, 51, 10)
    last = gzip.compress(
        "".join(json.dumps(record) + "\n" for _, record in extra.records if record["role"] == "target").encode()
    )
    first.write_bytes(first.read_bytes() + last[: len(last) // 2])
    append(second, {"v": 2, "task": TASK, "role": "target", "src_seq": "not a number any more"})
    with third.open("ab") as file:
        file.write(gzip.compress(b"{not json\n") + gzip.compress(b'{"v":1,"task":"half a record"}\n'))
    shutil.copy(fourth, first.with_name(fourth.name))
    shutil.copy(fourth, fourth.with_name(f"copy-of-{fourth.name}"))
    fourth.with_name("wn1-0.jsonl.gz").touch()
    (first.parent / "notes.txt").write_text("not a journal")
    (tmp_path / "journal" / "marks").mkdir()
    (tmp_path / "journal" / "marks" / "watch.json").write_text("{}")
    result = run(spark, tmp_path)
    assert kinds(result) == ["duplicated-file", "malformed-record", "not-a-journal", "torn-file", "unknown-version"]
    assert result.exit_code == 2
    assert result.summary.counts == {"delivered": 120}
    assert any("twice" in note for note in result.summary.notes)
    texts = " ".join(each["text"] for each in result.summary.problems)
    assert "cut short after 1 whole members" in texts
    assert "1 records of version 2, expected 1" in texts


@pytest.mark.parametrize("garbage", [b"this is no gzip at all", b"\x1f\x8b\x08\x00"], ids=["text", "header"])
def test_what_a_torn_file_took_with_it_is_undecided_not_missing(spark, tmp_path, garbage):
    steady(Journals()).write(tmp_path / "journal")
    (target,) = files(tmp_path, "target")
    target.write_bytes(garbage)
    result = run(spark, tmp_path, hours=1, settings=WITHOUT_GRACE)
    assert "torn-file" in kinds(result)
    assert result.summary.counts == {"undecided": 30}
    assert result.exit_code == 2
    assert len(table(result, "explained")) == 30


@pytest.mark.parametrize(("gone", "told"), [("target", "undecided"), ("source", "undecided")])
def test_a_side_that_is_missing_is_named_and_decides_nothing(spark, tmp_path, gone, told):
    steady(Journals()).write(tmp_path / "journal")
    for path in files(tmp_path, gone):
        path.unlink()
    result = run(spark, tmp_path, hours=1, settings=WITHOUT_GRACE)
    assert kinds(result) == ["side-missing"]
    assert result.summary.counts == {told: 30}
    assert result.exit_code == 2


def test_clocks_that_disagree_are_named(spark, tmp_path):
    journals = Journals()
    for seq in range(1, 30):
        at = START + MINUTE * seq
        journals.received(seq, at + timedelta(minutes=5), at)
        journals.outcome(seq, at)
    journals.write(tmp_path / "journal")
    result = run(spark, tmp_path, hours=1)
    assert kinds(result) == ["clocks-disagree"]
    assert "300.0 s before" in result.summary.problems[0]["text"]
    assert result.exit_code == 2


def test_an_hour_that_is_still_written_is_named_and_not_counted(spark, tmp_path):
    steady(Journals(), hours=2).write(tmp_path / "journal")
    now = START + timedelta(hours=2)
    result = run(spark, tmp_path, hours=2, now=now)
    assert kinds(result) == ["hour-open"]
    assert "1 of 2 hours" in result.summary.problems[0]["text"]
    assert result.summary.counts == {"delivered": 15}
    assert result.exit_code == 2
    stopped = Settings(writers_stopped=True, grace=timedelta(0), refreeze=True)
    assert run(spark, tmp_path, hours=2, now=now, settings=stopped).summary.counts == {"delivered": 30}


def test_a_tap_that_fell_silent_proves_no_loss(spark, tmp_path):
    journals, _ = planted(["delivered"] * 100, taps=True, hours=2)
    half = START + timedelta(minutes=15)
    journals.records = [
        (written, record)
        for written, record in journals.records
        if record.get("tap") != "watch-target" or written < half
    ]
    journals.write(tmp_path / "journal")
    result = run(spark, tmp_path, hours=2, settings=WITHOUT_GRACE)
    assert kinds(result) == ["silent-tap"]
    assert set(verdicts(result).values()) == {"undecided"}
    assert result.exit_code == 2


def test_a_night_without_any_journal_is_clean_of_nothing(spark, tmp_path):
    (tmp_path / "journal").mkdir()
    result = run(spark, tmp_path, hours=1)
    assert result.summary.counts == {}
    assert result.summary.sentence == "No journal has a record of these hours."
    assert result.exit_code == 2


def test_every_place_where_a_member_can_be_cut_is_noticed():
    whole = gzip.compress(b'{"a":1}\n') + gzip.compress(b'{"b":2}\n')
    first = len(gzip.compress(b'{"a":1}\n'))
    assert whole_members(whole) == ([b'{"a":1}', b'{"b":2}'], None)
    for cut in range(first + 1, len(whole)):
        lines, trouble = whole_members(whole[:cut])
        assert lines == [b'{"a":1}']
        assert trouble is not None
