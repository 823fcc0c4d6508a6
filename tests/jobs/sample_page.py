"""A page with every kind of finding, hostile ids and 30 nights, made without Spark."""

from datetime import UTC, datetime, timedelta
from typing import Any

from busway_reconcile.judge.verdicts import FINDINGS, UNDECIDED
from busway_reconcile.report.finding import Finding, Kind
from busway_reconcile.report.page import render
from busway_reconcile.report.trace import Step, moment
from busway_reconcile.report.trend import Night, Trend
from busway_reconcile.settings import Window
from busway_reconcile.summary import Summary, TaskSummary

DAY = datetime(2026, 11, 20, tzinfo=UTC)
RUN = Window.of_day(DAY.date()).run
TASK = "orders-west-to-east"
HOSTILE = (
    "<script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "\"><svg onload='window.hacked = 1'>",
    "{{ 7 * 7 }}",
    "\u202etxt.exe\x1b[31m\x00",
    "\u0625\u0637\u0644\u0628-12",
    "x" * 260,
    None,
)
FOUND = {kind: 3 + 11 * at for at, kind in enumerate((*FINDINGS, UNDECIDED))}


def sample_page() -> str:
    """Return the page of a night with findings."""
    summary = sample_summary({**FOUND, "delivered": 1_204_331, "filtered": 20_114, "in_flight": 3})
    kinds = [Kind(kind, count, _findings(kind)) for kind, count in FOUND.items()]
    return render(summary, kinds, Trend([*sample_nights(29), Night(DAY.date(), 1, 1_225_000, FOUND, 900.0)]))


def sample_summary(verdicts: dict[str, int]) -> Summary:
    """Return the summary of a night with two tasks, one with *verdicts*."""
    hours = [
        {"hour": f"2026-11-20T{hour:02}", "messages": 1000 * hour, **dict.fromkeys(("p50", "p95", "p99"), 90.0 + hour)}
        for hour in range(24)
        if hour not in (5, 6)
    ]
    lags = {"p50": 120.0, "p90": 240.0, "p95": 806.0, "p99": 1_240.0, "max": 3_900_000.0}
    tasks = [
        TaskSummary(
            name, [("west", "orders/Subscriptions/replication")], ["east/orders"], evidence, [],
            DAY.isoformat(), DAY.isoformat(), counts, lag_milliseconds=lags, lag_by_hour=hours,
        )
        for name, evidence, counts in (
            (TASK, "taps at both sides", verdicts),
            ("telemetry-from-the-factories-to-the-cold-archive", "replicator's own", {"delivered": 80_000}),
        )
    ]  # fmt: skip
    for task in tasks:
        task.entered = sum(count for name, count in task.verdicts.items() if name != "orphan")
    where = f"task={TASK}/date=2026-11-20/hour=03/role=source/wn1-1795132800000-1795143600000.jsonl.gz"
    problem = {"kind": "torn-file", "where": where, "text": "a gzip member is incomplete"}
    return Summary(
        RUN, DAY.isoformat(), (DAY + timedelta(days=1)).isoformat(), (DAY + timedelta(days=1)).isoformat(), 1,
        "findings", "1225691 messages: some are missing.", {"grace": 7200.0, "late_after": 900.0}, tasks, [problem],
        ["a note"], {"files": 96, "hours": 24}, None, {},
        {name: f"runs/{RUN}/{name}" for name in ("findings", "explained", "missing", "evidence")},
    )  # fmt: skip


def sample_nights(count: int) -> list[Night]:
    """Return *count* nights before DAY; every seventh has late messages, every tenth no result."""
    days = [DAY.date() - timedelta(days=before) for before in range(count, 0, -1)]
    return [
        Night(day)
        if number % 10 == 9
        else Night(day, 1, 1_000_000, {"late": 40, "delivered": 999_960}, 5_000.0)
        if number % 7 == 0
        else Night(day, 0, 900_000 + number, {"delivered": 900_000 + number}, 700.0)
        for number, day in enumerate(days)
    ]


def _findings(kind: str) -> list[Finding]:
    return [Finding(_row(kind, number, name), _steps()) for number, name in enumerate(HOSTILE)]


def _row(kind: str, number: int, name: str | None) -> dict[str, Any]:
    return {
        "message_id": name, "verdict": kind, "findings": [kind, "late"], "task": TASK,
        "src_site": "west", "src_entity": "orders/Subscriptions/replication", "src_part": 0, "src_seq": 4711 + number,
        "enqueued_time": round(DAY.timestamp() * 1e6) + number, "order_key": name, "copies": 2, "expected": 1,
        "altered": "body", "lag_milliseconds": 1e6, "arrived_at": "east/orders", "meant_for": "east/orders",
        "last_reason": name, "note": name, "known_since": RUN,
    }  # fmt: skip


def _steps() -> list[Step]:
    return [Step(moment(round(DAY.timestamp() * 1e6)), f"task {TASK}", HOSTILE[0] or "")]
