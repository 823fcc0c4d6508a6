"""What a task's recorder reports of the batches that a real pipeline has run."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from shared.clock import ManualClock
from shared.errors import BuswayError, MessageRejected, TargetRefused, TargetUnavailable
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.message.arrival import Origin
from shared.message.ttl import Keep
from shared.protocols import Outgoing
from shared.status.recorder import TaskRecorder, hour_report
from shared.status.report import MOST_REJECTS, HourReport, InstanceReport, TaskReport
from tests.fakes import JournalInMemory
from tests.messages import delivered

START = datetime(2026, 11, 23, 10, 0, 30, tzinfo=UTC)
NOW = round(START.timestamp() * 1000)
SECOND = 1000


class Answering:
    """An output with one answer for each message, which another test may change between batches."""

    def __init__(self) -> None:
        self.error: BuswayError | None = None
        self.seen_in_hand: list[int] = []
        self.recorder: TaskRecorder | None = None

    async def send(
        self,
        entity: str,  # noqa: ARG002 - one answer for all
        messages: Sequence[Outgoing],
        *,
        timeout_seconds: float,  # noqa: ARG002 - it answers at once
    ) -> list[BuswayError | None]:
        report = None if self.recorder is None else self.recorder.report()
        self.seen_in_hand.append(0 if report is None else report.in_hand)
        return [self.error for _ in messages]

    async def close(self) -> None:
        pass


class Line:
    """A pipeline with its recorder."""

    def __init__(self, *, is_hub: bool = False, has_rejects: bool = True) -> None:
        self.clock = ManualClock(START)
        self.output = Answering()
        self.recorder = TaskRecorder("copy", self.clock, is_hub=is_hub)
        self.output.recorder = self.recorder
        rejects = Answering()
        task = Task(
            "copy",
            Origin("west", "orders"),
            (),
            Router([Route(Target(self.output, "east", "orders"))]),
            Target(rejects, "west", "rejected") if has_rejects else None,
            Keep(),
            None,
            # A batch that has to wait ends at once.
            hold=timedelta(seconds=1),
        )

        async def sleep(seconds: float) -> None:
            self.clock.advance(seconds)

        self.pipeline = Pipeline(task, JournalInMemory(), self.clock, sleep, telemetry=self.recorder)

    def run(self, *contents: bytes, partition: str | None = None) -> None:
        asyncio.run(self.pipeline.run(contents, partition))

    def report(self) -> TaskReport:
        report = self.recorder.report()
        assert report is not None
        return report


def content(number: int = 1, age: int = 0, **options: Any) -> bytes:
    return delivered(number, enqueued=NOW - age, **options)


def test_nothing_is_reported_of_a_task_that_this_instance_has_not_run() -> None:
    assert TaskRecorder("copy").report() is None


def test_a_batch_is_counted_by_outcome_with_the_age_of_its_oldest_message() -> None:
    line = Line()
    line.run(content(1, 4 * SECOND), content(2, 9 * SECOND))
    report = line.report()
    (minute,) = report.minutes
    assert (minute.sent, minute.rejected, minute.retried, minute.lag) == (2, 0, 0, 9 * SECOND)
    assert report.last_batch == NOW
    assert (report.in_hand, report.error, report.outages) == (0, None, [])


def test_a_batch_in_progress_is_in_hand_with_its_oldest_message() -> None:
    line = Line()
    line.run(content(1), content(2))
    assert line.output.seen_in_hand == [2]


def test_a_message_that_was_accepted_before_is_a_duplicate() -> None:
    line = Line()
    line.run(content(1))
    line.run(content(1))
    report = line.report()
    assert (report.minutes[0].sent, report.minutes[0].duplicates) == (1, 1)


def test_rejected_messages_are_listed_without_their_content_the_latest_first() -> None:
    line = Line()
    line.output.error = MessageRejected("TooLarge", "it has 2 MB")
    for number in range(1, MOST_REJECTS + 4):
        line.run(content(number, body=b"secret"))
    report = line.report()
    assert len(report.rejects) == MOST_REJECTS
    assert report.rejects[0].reason == "TooLarge: it has 2 MB"
    assert b"secret" not in msgspec.json.encode(report)


def test_an_outage_is_reported_from_its_beginning_until_a_target_accepts_again() -> None:
    line = Line()
    line.output.error = TargetRefused("east/orders: it is disabled")
    with pytest.raises(TargetRefused):
        line.run(content(1))
    line.clock.advance(30)
    with pytest.raises(TargetRefused):
        line.run(content(1))
    report = line.report()
    (outage,) = report.outages
    assert (outage.place, outage.kind, outage.since) == ("east/orders", "refused", NOW)
    assert report.error is not None
    assert report.error_since == NOW
    assert sum(minute.retried for minute in line.recorder.minutes(0, 10**9)) == 2
    line.output.error = None
    line.run(content(1))
    report = line.report()
    assert (report.outages, report.error) == ([], None)


def test_an_unavailable_target_is_distinguished_from_one_that_refuses() -> None:
    line = Line()
    line.output.error = TargetUnavailable("east/orders: cannot be reached")
    with pytest.raises(TargetUnavailable):
        line.run(content(1))
    assert line.report().outages[0].kind == "unavailable"


def test_the_rate_is_that_of_the_last_minute() -> None:
    line = Line()
    line.clock.advance(120)
    line.run(*(content(number) for number in range(1, 121)))
    assert line.report().rate == 2.0
    line.clock.advance(61)
    assert line.report().rate == 0.0


def test_a_hub_reports_how_far_each_partition_is_settled() -> None:
    line = Line(is_hub=True)
    line.run(content(7), content(8), partition="0")
    line.run(content(3), partition="1")
    line.output.error = TargetUnavailable("east/orders: cannot be reached")
    with pytest.raises(TargetUnavailable):
        line.run(content(9), partition="0")
    assert line.report().positions == {"0": 8, "1": 3}


def test_a_report_has_the_last_minutes_and_an_hour_has_its_own() -> None:
    line = Line()
    for _ in range(4):
        line.run(content(1))
        line.clock.advance(60)
    minute = NOW // 60_000
    report = line.report()
    assert [minute.minute for minute in report.minutes] == [minute + 3]
    hour = hour_report([line.recorder, TaskRecorder("other")], minute // 60)
    assert [minute.minute for minute in hour.minutes["copy"]] == [minute, minute + 1, minute + 2, minute + 3]
    assert set(hour.minutes) == {"copy"}


def test_a_report_of_a_hundred_tasks_is_small() -> None:
    line = Line()
    line.run(content(1))
    report = line.report()
    whole = InstanceReport(1, "i" * 64, NOW, NOW, [report] * 100)
    assert len(msgspec.json.encode(whole)) < 32_000
    hour = HourReport(1, {f"task-{number}": [*report.minutes] * 60 for number in range(100)})
    assert len(msgspec.json.encode(hour)) < 300_000
