"""
The table of docs/capacity.md: what one instance carries, by round trip and size, and what a million messages cost.

    python -m benchmarks.capacity

Each row is measured as in `benchmarks.ocean`: without sessions, with eight lanes, the journal on, 5 ms to source and
journal. Everything else follows from the rate and the counts by arithmetic.
"""

import asyncio
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime

from benchmarks.measurement import Measurement
from benchmarks.ocean import Case, measured
from benchmarks.stack import FOLDER

PAGE = FOLDER / "docs/capacity.md"
START, END = "<!-- measured -->\n", "<!-- end of what was measured -->\n"

ROUND_TRIPS = (0, 20, 80, 150)
SIZES = {"1 KB": 1 << 10, "10 KB": 10 << 10, "100 KB": 100 << 10}
LANES = 8
TARGET_RATE = 10_000
# Flex Consumption's default size of an instance.
INSTANCE_GB = 2
# A messaging unit of Premium carries about this much in each direction, a throughput unit of Event Hubs this much in.
MESSAGING_UNIT_BYTES = 4 << 20
THROUGHPUT_UNIT_BYTES = 1 << 20
THROUGHPUT_UNIT_EVENTS = 1_000


def row(size: str, round_trip: int, figure: Measurement) -> str:
    """Return a line of the table."""
    rate, beside = figure.value, figure.beside
    in_bytes = rate * SIZES[size]
    cells = [
        size,
        f"{round_trip} ms" if round_trip else "none",
        f"{rate:,.0f}",
        f"{_up(TARGET_RATE / rate):,}",
        f"{beside['calls/k'] * 1000:,.0f}",
        f"{INSTANCE_GB * 1e6 / rate:,.0f}",
        f"{beside['appends/k'] * 1000:,.0f}",
        f"{in_bytes / MESSAGING_UNIT_BYTES:.1f}",
        f"{_up(max(in_bytes / THROUGHPUT_UNIT_BYTES, rate / THROUGHPUT_UNIT_EVENTS)):,}",
    ]
    return f"| {' | '.join(cells)} |"


def table(figures: Sequence[tuple[str, int, Measurement]], load: float) -> str:
    """Return the table as Markdown, with the machine and the day on which it was measured."""
    headings = (
        "size",
        "to the target",
        "messages/s of an instance",
        f"instances for {TARGET_RATE:,}/s",
        "executions per million",
        "GB-seconds per million",
        "journal appends per million",
        "messaging units at that rate",
        "throughput units at that rate",
    )
    machine = f"{os.cpu_count()} cores ({platform.machine()})"
    shared_by = "that broker, proxies, storage emulator, host and worker shared"
    lines = [
        f"Measured on {datetime.now(UTC):%Y-%m-%d}, {machine} {shared_by}, load {load:.1f} before it began.",
        "",
        f"| {' | '.join(headings)} |",
        "|---" * len(headings) + "|",
        *(row(*figure) for figure in figures),
    ]
    return "\n".join(lines) + "\n"


def written(page: str, content: str) -> str:
    """Return *page* with *content* between its marks."""
    before, start, rest = page.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"{PAGE.name}: expected the lines {START.strip()} and {END.strip()}")
    return before + start + "\n" + content + "\n" + end + after


async def main() -> None:
    """Measure every row and write the page."""
    load = os.getloadavg()[0]
    figures = []
    for size, body_bytes in SIZES.items():
        for round_trip in ROUND_TRIPS:
            figure = await measured(Case(round_trip, LANES, body_bytes=body_bytes))
            print(f"{size}, {round_trip} ms: {figure.value:,.0f} messages/s", flush=True)
            figures.append((size, round_trip, figure))
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), table(figures, load)), encoding="utf-8")


def _up(number: float) -> int:
    return -int(-number // 1)


if __name__ == "__main__":
    asyncio.run(main())
