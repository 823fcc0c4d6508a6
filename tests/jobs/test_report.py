"""The page, by its elements, as a browser reads it."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from busway_reconcile.journal import schema
from busway_reconcile.judge.verdicts import FINDINGS, UNDECIDED
from busway_reconcile.report.finding import Kind, with_ends
from busway_reconcile.report.lag_chart import duration
from busway_reconcile.report.page import SHOWN, render, write_page
from busway_reconcile.report.repair_manifest import places, write_manifest
from busway_reconcile.report.trace import Step, moment, trace
from busway_reconcile.report.trend import Trend
from busway_reconcile.settings import Window
from busway_reconcile.summary import Summary
from tests.jobs.journals import START, TASK
from tests.jobs.night import EVIL, MISSING, Night
from tests.jobs.sample_page import sample_summary

VOID = {"meta", "link", "br", "img", "input", "hr", "wbr"}


class Page(HTMLParser):
    """A page as a list of elements: tag, attributes, the tags around it, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[dict[str, Any]] = []
        self._open: list[dict[str, Any]] = []
        self.feed(text)
        assert self._open == [], "an element is not closed"

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        element = {"tag": tag, **dict(attributes), "within": [each["tag"] for each in self._open], "text": ""}
        self.elements.append(element)
        if tag not in VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append({"tag": tag, **dict(attributes), "within": [], "text": ""})

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()["tag"] == tag

    def handle_data(self, data: str) -> None:
        for element in self._open:
            element["text"] += data

    def all(self, tag: str, **attributes: str) -> list[dict[str, Any]]:
        return [
            element
            for element in self.elements
            if element["tag"] == tag and all(value in element.get(name, "") for name, value in attributes.items())
        ]


class Finished(NamedTuple):
    """A finished run with its page."""

    summary: Summary
    page: str
    spark: SparkSession
    out: str
    plan: Mapping[int, str]


def write_earlier_nights(runs: Path) -> None:
    """Write the summaries of four earlier days, one of them unreadable, and of an earlier hour."""
    for ends, hours, text in (
        (1, 24, sample_summary({"late": 3, "delivered": 7}).to_json()),
        (2, 24, "{}"),
        (4, 24, sample_summary({"missing": 2, "orphan": 1}).to_json()),
        (31, 24, sample_summary({"delivered": 5}).to_json()),
        (1, 1, sample_summary({"looped": 9}).to_json()),
    ):
        end = START - timedelta(days=ends - 1)
        folder = runs / Window(end - timedelta(hours=hours), end).run
        folder.mkdir()
        (folder / "summary.json").write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def run(spark: SparkSession, night: Night) -> Finished:
    write_earlier_nights(night.out / "runs")
    path = write_page(spark, night.result.summary, str(night.out))
    page = Path(path.removeprefix("file:")).read_text(encoding="utf-8")
    return Finished(night.result.summary, page, spark, str(night.out), night.plans[TASK])


def test_the_page_needs_no_other_file(run: Finished) -> None:
    page = Page(run.page)
    assert not page.all("script")
    assert not page.all("link")
    addresses: list[Any] = [
        element.get(name) for element in page.elements for name in ("src", "href", "xlink:href") if name in element
    ]
    assert addresses
    assert all(address.startswith("#") for address in addresses)
    assert "url(http" not in run.page
    assert "@import" not in run.page
    ids = [element["id"] for element in page.elements if "id" in element]
    assert len(ids) == len(set(ids))
    assert {address[1:] for address in addresses} <= set(ids)


def test_the_verdict_is_on_top(run: Finished) -> None:
    page = Page(run.page)
    assert page.all("header")[0]["text"].split()[:2] == ["✗", "Findings"]
    assert run.summary.sentence in page.all("header")[0]["text"]
    assert page.elements.index(page.all("h1")[0]) < page.elements.index(page.all("h2")[0])


def test_the_figures_of_a_task_add_up(run: Finished) -> None:
    page = Page(run.page)
    rows = [element for element in page.elements if element["tag"] in ("th", "td")]
    start = next(at for at, row in enumerate(rows) if row["text"] == TASK and row["scope"] == "row")
    figures = {}
    for cell in rows[start + 1 :]:
        if cell["tag"] == "th":
            break
        figures[cell["data-label"]] = int(cell["text"])
    parts = [number for name, number in figures.items() if name[0] in "=+"]
    assert figures["messages"] == sum(parts) > MISSING
    assert figures["orphans (extra)"] == 1
    assert figures["+ missing"] == MISSING


def test_the_trend_has_the_nights_before(run: Finished) -> None:
    page = Page(run.page)
    marks = [(each["title"], each["text"]) for each in page.all("span", title="2026-")]
    assert marks == [
        ("2026-11-16: findings", "✗"),
        ("2026-11-17: no result", "·"),
        ("2026-11-18: no result", "·"),
        ("2026-11-19: findings", "✗"),
    ]
    shown = {
        each["id"]: page.elements[page.elements.index(each) + 1]["text"] for each in page.all("h3") if "id" in each
    }
    assert "Also found in 1 of the 2 nights before." in shown["missing"]
    assert "New: not found in the 2 nights before." in shown["looped"]


def test_a_finding_has_its_trace_and_the_rest_is_counted(run: Finished) -> None:
    summary, text, *_ = run
    page = Page(text)
    found = page.all("details", **{"class": "finding"})
    counts = summary.counts
    shown = sum(min(SHOWN, counts.get(kind, 0)) for kind in (*FINDINGS, UNDECIDED))
    assert len(found) == shown
    (looped,) = [each for each in found if EVIL in each["text"]]
    times = [" ".join(words.split()[:2]) for words in looped["text"].split("\n") if words.startswith("2026-")]
    assert len(times) == 1 + 4  # when it entered, and four records
    assert times[1:] == sorted(times[1:])
    assert "tap watch-target saw it in east/orders, sequence number" in looped["text"]
    assert f"All {counts['missing']} are in runs/" in " ".join(text.replace("<code>", "").split())


def test_each_kind_of_finding_says_what_to_do(run: Finished) -> None:
    summary, text, *_ = run
    page = Page(text)
    advice = {each["id"]: page.elements[page.elements.index(each) + 2 :] for each in page.all("h3") if "id" in each}
    for kind in (kind for kind in (*FINDINGS, UNDECIDED) if summary.counts.get(kind)):
        box = next(each for each in advice[kind] if each.get("class") == "do")
        assert re.match("What to do: .{20}", " ".join(box["text"].split())), kind
        command = next(each["text"] for each in advice[kind] if each["tag"] == "code")
        # Hours that are no whole day cannot be reconciled again by their date.
        assert command.startswith(("busway ", "duckdb ")) or kind == UNDECIDED
    assert f"busway repair runs/{summary.run}/repair.jsonl" in text
    assert "exit code" not in text.lower()


def test_the_page_is_accessible(run: Finished) -> None:
    page = Page(run.page)
    assert page.all("html", lang="en")
    assert page.all("meta", name="viewport")
    for header in page.all("th"):
        assert header.get("scope") in ("col", "row")
    for table in page.all("table"):
        assert table["text"].strip()
    trend, *charts = page.all("div", role="img")
    assert "the table below" in trend["aria-label"]
    assert charts
    assert all("median" in chart["aria-label"] for chart in charts)
    assert all(each["aria-hidden"] == "true" for each in page.all("svg"))
    assert "prefers-color-scheme: dark" in run.page


def test_of_many_records_the_page_shows_the_first_and_the_last(run: Finished) -> None:
    summary = run.summary
    steps = [Step(f"at {number}", "task t", f"record {number}") for number in range(1000)]
    row: dict[str, Any] = defaultdict(lambda: None)
    row |= {"message_id": "i" * 200_000, "verdict": "late", "findings": [], "lag_milliseconds": 1.0}
    text = render(summary, [Kind("late", 1, [with_ends(row, steps)])], Trend([]))
    (element,) = Page(text).all("details", **{"class": "finding"})
    assert "record 9\n" in element["text"]
    assert "960 more records" in element["text"]
    assert "record 970\n" in element["text"]
    assert "record 999\n" in element["text"]
    assert "record 10\n" not in element["text"]
    assert "200,000 characters" in element["text"]
    assert len(element["text"]) < 5000


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0.4, "0 ms"),
        (999.4, "999 ms"),
        (999.6, "1 s"),
        (59_990, "1 min"),
        (3_599_999, "1 h"),
        (5.4e6, "1.5 h"),
        (3.6e9, "1,000 h"),
    ],
)
def test_a_length_of_time_has_the_largest_unit_that_it_fills(milliseconds: float, text: str) -> None:
    assert duration(milliseconds) == text


def test_a_time_outside_the_calendar_is_shown_as_a_number() -> None:
    assert moment(10**18) == "1000000000000000000 µs since 1970"
    assert moment(1_795_132_800_000_000) == "2026-11-20 00:00:00.000"


def test_a_chart_has_the_hours_of_the_window_whatever_time_a_record_claims() -> None:
    summary = sample_summary({"delivered": 10})
    task = summary.tasks[0]
    first, last = ({**task.lag_by_hour[0], "hour": hour} for hour in ("1970-01-01T00", "9999-12-30T23"))
    task.lag_by_hour = [first, *task.lag_by_hour, last]
    text = render(summary, [], Trend([]))
    assert len(Page(text).all("svg", **{"class": "lags"})) == 2
    assert "9999-12-30" not in text


@pytest.mark.parametrize("outcome", schema.OUTCOMES)
def test_a_record_of_each_outcome_is_a_step_whoever_wrote_it(outcome: str) -> None:
    record: dict[str, Any] = dict.fromkeys(schema.COMPACTED) | {
        "outcome": outcome,
        "observer": "task",
        "journal_time": 0,
    }
    (step,) = trace([record])
    assert step.text


def test_problems_with_the_evidence_are_shown(run: Finished) -> None:
    shown = " ".join(each["text"] for each in Page(run.page).all("li"))
    assert all(problem["text"] in shown for problem in run.summary.problems)
    for kind, count in Counter(problem["kind"] for problem in run.summary.problems).items():
        assert f"{count} \u00d7 {kind.replace('-', ' ')}" in run.page


def test_the_manifest_has_the_digests_and_places_of_each_missing_or_expired_message(run: Finished) -> None:
    summary, _, spark, out, plan = run
    lines = [json.loads(line) for line in Path(write_manifest(spark, summary, out)[5:]).read_text().splitlines()]
    wanted = {seq: verdict for seq, verdict in plan.items() if verdict in ("missing", "expired-unsent")}
    count = sum(summary.counts[verdict] for verdict in ("missing", "expired-unsent"))
    assert lines[0] == {"manifest": 2, "run": summary.run, "messages": count, "missing": count}
    of_task = [line for line in lines[1:] if line["task"] == TASK]
    assert {line["src_seq"]: line["verdict"] for line in of_task} == wanted
    assert {*wanted.values()} == {"missing", "expired-unsent"}
    assert all(len(line["body_digest"]) == 32 and line["enqueued_time"] for line in of_task)
    dead_letters = {"in": "dead-letters", "entity": "west/orders/Subscriptions/replication/$DeadLetterQueue"}
    for line in of_task:
        seen = {"in": "tap", "tap": "watch-source", "partition": 0, "number": line["src_seq"]}
        assert line["places"] == [dead_letters, seen]


@pytest.mark.parametrize(
    ("entity", "part", "kinds"),
    [
        ("orders", 0, ["dead-letters", "hub"]),
        ("orders/Subscriptions/replication", 0, ["dead-letters"]),
        ("telemetry", 3, ["hub"]),
        ("orders/$DeadLetterQueue", 0, []),
    ],
)
def test_the_manifest_lists_the_places_that_a_source_may_have(entity: str, part: int, kinds: list[str]) -> None:
    found = places({"src_site": "west", "src_entity": entity, "src_part": part, "seen": None})
    assert [each["in"] for each in found] == kinds
