"""
`make conformance`: Microsoft's SDKs against the broker, as a table.

A failure with a reason in `known.py` is listed with that reason, and a test that passes when it runs again alone is
counted apart: neither makes the run fail. Logs and `results.json` are in build/conformance.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.conformance import proton, python_tests, scenarios
from tests.conformance.known import reason_for
from tests.conformance.result import Result, Skipped

FOLDER = Path("build/conformance")

type Part = Callable[[Path, str], Iterator[Result]]

PARTS: Mapping[str, Part] = {
    "javascript": scenarios.javascript,
    "java": scenarios.java,
    "go": scenarios.go,
    "proton": proton.transactions,
    "python-administration": python_tests.administration,
    "python-event-hubs": python_tests.event_hubs,
    "python-service-bus": python_tests.service_bus,
}


def main() -> int:
    """Run all parts, or those that are named, and return 1 if a test failed without a known reason."""
    parser = argparse.ArgumentParser(prog="make conformance", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all by default")
    parser.add_argument(
        "--words", default="", help="only tests with these words: an expression of pytest -k, or a text"
    )
    options = parser.parse_args()
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        parser.error(f"unknown part {unknown[0]}, expected {', '.join(PARTS)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    console = Console()
    found: dict[str, list[Result]] = {}
    reasons: dict[str, str] = {}
    for name in options.parts or PARTS:
        console.print(f"{name} …", style="dim")
        try:
            found[name] = list(PARTS[name](FOLDER.absolute(), options.words))
        except Skipped as skipped:
            reasons[name] = str(skipped)
    console.print(_table(found, reasons))
    failures = [(name, result) for name, results in found.items() for result in results if result.outcome == "failed"]
    new = []
    for name, result in failures:
        why = reason_for(name, result.name)
        if why is None:
            new.append(result)
        style, text = ("red", result.reason[:200]) if why is None else ("dim", f"known: {why}")
        console.print(f"{name}: {result.name}: {text}", style=style, markup=False, soft_wrap=True)
    for name, result in ((name, result) for name, results in found.items() for result in results):
        if result.outcome == "passed alone":
            text = f"passed alone, failed among others: {result.reason[:200]}"
            console.print(f"{name}: {result.name}: {text}", style="dim", markup=False, soft_wrap=True)
    results = {name: [asdict(result) for result in results] for name, results in found.items()}
    (FOLDER / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 1 if new else 0


def _table(found: Mapping[str, list[Result]], reasons: Mapping[str, str]) -> Table:
    table = Table(title="Conformance")
    for heading in ("part", "passed", "alone", "failed", "known", "skipped"):
        table.add_column(heading, justify="left" if heading == "part" else "right")
    for name, results in found.items():
        counts = Counter(result.outcome for result in results)
        known = sum(result.outcome == "failed" and reason_for(name, result.name) is not None for result in results)
        failed = counts["failed"] - known
        numbers = counts["passed"], counts["passed alone"], failed, known, counts["skipped"]
        table.add_row(name, *map(str, numbers))
    for name, reason in reasons.items():
        table.add_row(f"{name}: not run, {reason}")
    return table


if __name__ == "__main__":
    sys.exit(main())
