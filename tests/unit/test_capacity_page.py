"""The table that `make capacity` writes into docs/capacity.md."""

import pytest

from benchmarks.capacity import END, PAGE, ROUND_TRIPS, SIZES, START, row, table, written
from benchmarks.measurement import Measurement

FIGURE = Measurement("", 2_048, "messages/s", beside={"calls/k": 10.0, "appends/k": 2.5})


def test_a_row_follows_from_the_rate_and_the_counts() -> None:
    cells = [cell.strip() for cell in row("10 KB", 80, FIGURE).strip("|").split("|")]
    # 20 MiB/s are 5 messaging units and 20 throughput units.
    assert cells == ["10 KB", "80 ms", "2,048", "5", "10,000", "977", "2,500", "5.0", "20"]


def test_small_events_need_throughput_units_by_their_number() -> None:
    assert row("1 KB", 0, FIGURE).split("|")[2].strip() == "none"
    assert row("1 KB", 0, FIGURE).strip("| ").rpartition("|")[2].strip() == "3"


def test_the_page_has_a_row_for_each_size_and_round_trip_and_is_written_again_in_place() -> None:
    page = PAGE.read_text(encoding="utf-8")
    measured = page.partition(START)[2].partition(END)[0]
    rows = sum(measured.count(f"| {size} |") for size in SIZES)
    assert rows == len(SIZES) * len(ROUND_TRIPS) or "Not measured yet" in measured
    once = written(page, table([("1 KB", 0, FIGURE)], 0.1))
    assert written(once, table([("1 KB", 0, FIGURE)], 0.1)) == once
    assert once.partition(START)[0] == page.partition(START)[0]


def test_a_page_without_marks_is_not_overwritten() -> None:
    with pytest.raises(ValueError, match="expected the lines"):
        written("# Capacity\n", "new")
