"""The lines of a journal against the one place that says what they may hold."""

import asyncio
import gzip
import json
import logging
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from shared.amqp.values import string
from shared.errors import TargetRefused, TargetUnavailable
from shared.journal.record import FIELDS, Role
from shared.journal.sink import Stream
from shared.journal.task import TaskJournal
from shared.line.pipeline import Pipeline
from shared.line.routing import Route, Router, Target
from shared.line.task import Task
from shared.message.arrival import Arrival, Origin
from shared.message.loop_prevention import LoopGuard
from shared.message.message import Message
from shared.message.ttl import Remaining
from shared.protocols import Joined, Outcome, Withheld
from shared.rules import parse_filter
from shared.telemetry.batch_log import BatchLog
from tests.fakes import (
    OutputThatAccepts,
    OutputThatFailsOnce,
    OutputThatIsDown,
    OutputThatRejects,
    clock_at_delivery,
    sleep_by,
)
from tests.memory_sink import MemorySink
from tests.messages import ENQUEUED, delivered

JSON_TYPES = {"int": int, "string": str, "hex": str, "boolean": bool, "list": list}
KNOWN = {field.name: field for field in FIELDS}
NOW = ENQUEUED * 1000


class SinkThatIsDown(MemorySink):
    """Keeps nothing until it is put up, and then nothing of the appends that are to fail."""

    def __init__(self, error: TargetUnavailable | TargetRefused | None = None) -> None:
        super().__init__()
        self.error = error or TargetUnavailable("journal: away")
        self.failing = -1
        self.attempted: list[Any] = []

    async def append(self, stream: Stream, member: bytes) -> None:
        self.attempted.append((stream.role, member))
        if self.failing:
            self.failing -= 1
            raise self.error
        await super().append(stream, member)


class Splitting:
    name = "split"

    def edit(self, message: Message) -> list[Message] | Withheld:
        if message.body == b"drop":
            return Withheld("no use for it")
        parts = [message.copy(), message.copy()] if message.body == b"split" else [message]
        for number, part in enumerate(parts[1:], 1):
            part.body = b"part %d" % number
        return parts


class LostRecords(BatchLog):
    """Counts the records reported as lost."""

    def __init__(self, lost: list[Any]) -> None:
        super().__init__("copy")
        self._lost = lost

    def unwritten(self, records: int) -> None:
        self._lost.append(records)


class Joining:
    name = "join"
    joins = True

    async def edit_batch(self, messages: list[Message], **_: float) -> Any:
        return [(messages[0],), *(Joined(0) for _ in messages[1:])]

    async def settled(self, outcomes: list[tuple[Arrival, Outcome]], **_: float) -> None:
        pass


class Line:
    """A pipeline with its journal, from a queue at west to one at east."""

    def __init__(
        self,
        *,
        output: OutputThatRejects | OutputThatFailsOnce | OutputThatIsDown | None = None,
        editors: list[Any] | tuple[Any, ...] = (),
        when: str | None = None,
        is_required: bool = True,
        sink: Any = None,
        rejects: bool = True,
    ) -> None:
        self.output = output or OutputThatAccepts()
        self.rejected = OutputThatAccepts()
        self.sink: Any = sink or MemorySink()
        self.clock = clock_at_delivery()
        self.lost: list[int] = []
        self.journal = TaskJournal(
            "copy", self.sink, is_hub=False, is_required=is_required, clock=self.clock, telemetry=LostRecords(self.lost)
        )
        task = Task(
            name="copy",
            origin=Origin("west", "orders"),
            editors=editors,
            router=Router([Route(Target(self.output, "east", "orders"), None if when is None else parse_filter(when))]),
            rejects=Target(self.rejected, "west", "rejected") if rejects else None,
            time_to_live=Remaining(),
            loop_guard=LoopGuard(),
            hold=timedelta(seconds=40),
        )
        self.pipeline = Pipeline(task, self.journal, self.clock, sleep_by(self.clock))

    def run(self, *batch: bytes) -> Counter[Outcome] | None:
        return asyncio.run(self.pipeline.run(batch))

    def records(self, role: Role) -> list[Any]:
        records: list[Any] = self.sink.records("copy", role)
        for record in records:
            assert {field.name for field in FIELDS if not field.is_nullable} <= set(record)
            for name, value in record.items():
                assert isinstance(value, JSON_TYPES[KNOWN[name].json]), name
        return records


def outcomes(line: Line) -> list[tuple[int, str]]:
    return [(record["src_seq"], record["outcome"]) for record in line.records(Role.TARGET)]


def test_joined_message_names_its_leader() -> None:
    line = Line(editors=[Joining()])
    line.run(delivered(1), delivered(2))
    assert outcomes(line) == [(1, "sent"), (2, "sent")]
    assert [record.get("joined") for record in line.records(Role.TARGET)] == [None, True]


def test_sent_message_has_two_records() -> None:
    line = Line()
    line.run(delivered(7, message_id="m", session_id="s"))
    (received,), (sent,) = line.records(Role.SOURCE), line.records(Role.TARGET)
    shared = {
        "v": 1,
        "task": "copy",
        "observer": "task",
        "instance": "memory-0",
        "batch_id": 1,
        "journal_time": NOW,
        "src_site": "west",
        "src_entity": "orders",
        "src_part": 0,
        "src_seq": 7,
    }
    assert (
        received.items()
        >= {
            **shared,
            "role": "source",
            "outcome": "received",
            "enqueued_time": NOW,
            "message_id": "m",
            "order_key": "s",
            "hops": ["west"],
        }.items()
    )
    digests = int(received["body_digest"][:16], 16), int(received["property_digest"], 16)
    assert sent == {
        **shared,
        "role": "target",
        "outcome": "sent",
        "check": f"{digests[0] ^ digests[1]:016x}",
        "send_ordinal": 0,
        "target": "east/orders",
    }


@pytest.mark.parametrize("error", [TargetUnavailable("journal: away"), TargetRefused("journal: no")])
def test_a_best_effort_journal_counts_lost_records_and_logs_once(
    caplog: pytest.LogCaptureFixture, error: TargetUnavailable | TargetRefused
) -> None:
    line = Line(sink=SinkThatIsDown(error), is_required=False)
    with caplog.at_level(logging.ERROR, "busway.journal"):
        for number in range(3):
            assert line.run(delivered(number)) == {Outcome.SENT: 1}
            line.clock.advance(1)
        assert line.lost == [1] * 6
        assert [record.message for record in caplog.records] == [
            f"copy: the journal cannot be written; the task continues without it: {error}"
        ]
        line.sink.failing = 0
        line.run(delivered(3))
    assert [record.message for record in caplog.records][1:] == ["copy: the journal recovered; 6 records were lost"]
    for role in Role:
        first, last, after = line.records(role)
        assert [each["outcome"] for each in (first, last)] == ["gap"] * 2
        assert [each["batch_id"] for each in (first, last, after)] == [1, 3, 4]
        assert [each["journal_time"] for each in (first, last)] == [NOW, NOW + 2_000_000]
        assert first["reason"] == "3 records could not be written"
        assert "src_seq" not in first
        assert after["src_seq"] == 3
    line.run(delivered(4))
    assert [len(line.records(role)) for role in Role] == [4, 4]


def test_withheld_message_has_stage_and_reason() -> None:
    line = Line(when="color = 'red'", editors=[Splitting()])
    path = {"repl-path": string("east"), "color": string("red")}
    line.run(
        delivered(1),
        delivered(2, named=path),
        delivered(3, named=path, time_to_live=1000, enqueued=ENQUEUED - 20_000),
        delivered(4, body=b"drop"),
    )
    outcomes = [(record["src_seq"], record["outcome"], record["stage"]) for record in line.records(Role.TARGET)]
    assert outcomes == [
        (1, "filtered", "routed"),
        (2, "looped", "routed"),
        (3, "expired", "stamped"),
        (4, "filtered", "edited"),
    ]
    assert all(record["reason"] for record in line.records(Role.TARGET))
    assert line.records(Role.SOURCE)[2]["expires_at"] == (ENQUEUED - 19_000) * 1000
    assert line.records(Role.SOURCE)[1]["hops"] == ["east", "west"]


def test_a_split_has_one_entry_and_an_outcome_for_each_part() -> None:
    line = Line(editors=[Splitting()])
    line.run(delivered(1, body=b"split"))
    (received,) = line.records(Role.SOURCE)
    assert received["parts"] == 2
    first, second = line.records(Role.TARGET)
    assert (first["part"], second["part"]) == (0, 1)
    assert "edited" not in first
    assert second["edited"] is True
    assert second["body_digest"] != received["body_digest"]
    assert second["property_digest"] == received["property_digest"]


def test_rejected_message_is_recorded_with_its_rejects_entity() -> None:
    line = Line(output=OutputThatRejects(lambda message: message.message_id == "bad"))
    line.run(delivered(1, message_id="good"), delivered(2, message_id="bad"), b"\x01")
    good, bad, unreadable = line.records(Role.TARGET)
    assert good["outcome"] == "sent"
    assert (bad["outcome"], bad["stage"], bad["target"]) == ("rejected", "sent", "west/rejected")
    assert (unreadable["outcome"], unreadable["stage"]) == ("rejected", "received")
    assert "src_seq" not in unreadable
    assert line.records(Role.SOURCE)[2]["body_size"] == 1
    assert "property_digest" not in line.records(Role.SOURCE)[2]


def test_waiting_message_is_recorded_as_retry_and_earlier_ones_as_sent() -> None:
    line = Line(output=OutputThatFailsOnce(after=1, error=TargetRefused("target/entity: no")))
    assert line.run(delivered(1), delivered(2)) == {Outcome.SENT: 2}
    line = Line(output=OutputThatIsDown())
    with pytest.raises(TargetUnavailable):
        line.run(delivered(1))
    assert outcomes(line) == [(1, "retry")]


class StoreThatIsAway:
    name, joins = "together", False

    async def edit_batch(self, messages: list[Message], *, timeout_seconds: float) -> None:
        assert messages
        assert timeout_seconds > 0
        raise TargetUnavailable("store: away")

    async def settled(self, outcomes: Any, *, timeout_seconds: Any) -> None:
        raise AssertionError(outcomes, timeout_seconds)


def test_message_rejected_before_the_editors_has_stage_received() -> None:
    line = Line(editors=[StoreThatIsAway()])
    with pytest.raises(TargetUnavailable, match="store: away"):
        line.run(delivered(1, message_id="m"), b"\x01")
    assert line.output.accepted == {}
    received, unreadable = line.records(Role.SOURCE)
    assert (received["src_seq"], received["message_id"], unreadable["body_size"]) == (1, "m", 1)
    retry, _ = line.records(Role.TARGET)
    assert (retry["outcome"], retry["stage"], retry["reason"]) == ("retry", "edited", "store: away")


def test_batch_held_by_an_editor_is_recorded_once() -> None:
    line = Line(editors=[StoreThatIsAway()], sink=SinkThatIsDown())
    started = line.clock.monotonic()
    with pytest.raises(TargetUnavailable, match="store: away"):
        line.run(delivered(1))
    assert line.clock.monotonic() - started <= 40  # the hold is over for the journal as well


def test_withheld_message_is_logged_once_during_a_journal_outage(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Away(SinkThatIsDown):
        async def append(self, stream: Stream, member: bytes) -> None:
            self.failing = 1 if stream.role is Role.TARGET and len(self.attempted) < 6 else 0
            await super().append(stream, member)

    line = Line(when="color = 'red'", sink=Away())
    with caplog.at_level(logging.WARNING, "busway.journal"):
        line.run(delivered(1))
    assert [role for role, _ in line.sink.attempted].count(Role.TARGET) == 6
    assert [record.name for record in caplog.records].count("busway.journal") == 1


def test_a_flush_is_one_gzip_member_of_json_lines() -> None:
    line = Line()
    line.run(*(delivered(number) for number in range(3)))
    (member,) = line.sink.members[Stream("copy", Role.SOURCE)]
    lines = gzip.decompress(member).splitlines()
    assert [json.loads(line)["src_seq"] for line in lines] == [0, 1, 2]


def test_a_dead_letter_has_its_reason_and_an_expired_message_the_end_of_its_lock() -> None:
    line = Line()
    reason = {"DeadLetterReason": string("TTLExpiredException")}
    line.run(
        delivered(1, named=reason, annotated={"x-opt-deadletter-source": string("invoices")}),
        # Not given up by the service: the property is the application's own.
        delivered(2, named=reason),
        delivered(3, enqueued=ENQUEUED - 3_600_000, locked_until=ENQUEUED + 1, time_to_live=1000),
    )
    reasons = [(record.get("given_up_by"), record.get("dead_letter_reason")) for record in line.records(Role.SOURCE)]
    assert reasons == [("invoices", "TTLExpiredException"), (None, None), (None, None)]
    locks = [(record["outcome"], record.get("locked_until")) for record in line.records(Role.TARGET)]
    assert locks == [("sent", None), ("sent", None), ("expired", (ENQUEUED + 1) * 1000)]
