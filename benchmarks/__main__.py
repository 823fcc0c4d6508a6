"""
Run each benchmark in a process of its own, print one table and write build/bench.json.

A missed bar is shown and is not a failure, because the machine may be busy. A benchmark that cannot run is a failure.
"""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.measurement import Measurement

BENCHMARKS = (
    "benchmarks.broker",
    "benchmarks.worker_cost",
    "benchmarks.cold_start",
    "benchmarks.reconcile",
)
_HOLDS = {None: "", True: "yes", False: "[red]no[/red]"}
_MANY = 100
_COLUMNS = 80


def main() -> int:
    """Run the benchmarks named on the command line, or all."""
    folder = Path("build")
    folder.mkdir(exist_ok=True)
    measurements: list[Measurement] = []
    failed = []
    console = Console()
    for name in sys.argv[1:] or BENCHMARKS:
        console.print(f"{name} …", style="dim")
        done = subprocess.run([sys.executable, "-m", name], stdout=subprocess.PIPE, text=True, check=False)  # noqa: S603 - our own modules
        if done.returncode:
            failed.append(name)
        measurements += [Measurement(**json.loads(line)) for line in done.stdout.splitlines()]
    rows = [
        {
            "name": measurement.name,
            "value": measurement.value,
            "unit": measurement.unit,
            "bar": measurement.bar,
            "holds": measurement.holds,
            **({"beside": dict(measurement.beside)} if measurement.beside else {}),
        }
        for measurement in measurements
    ]
    (folder / "bench.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    plain = [measurement for measurement in measurements if not measurement.beside]
    if plain:
        console.print(_table(plain))
    for measurement in measurements:
        if measurement.beside:
            console.print(_with_others(measurement), highlight=False)
    for name in failed:
        console.print(f"{name} failed to run; its error is above", style="red")
    return 1 if failed else 0


def _table(measurements: list[Measurement]) -> Table:
    table = Table(title="Benchmarks")
    for heading in ("figure", "value", "unit", "bar", "holds"):
        table.add_column(heading, justify="left" if heading in ("figure", "unit") else "right")
    for measurement in measurements:
        table.add_row(
            measurement.name, _text(measurement.value), measurement.unit, _bar(measurement), _HOLDS[measurement.holds]
        )
    return table


def _with_others(each: Measurement) -> str:
    """Return a figure and, below it, the others beside it."""
    bar = "" if each.bar is None else f", bar {_bar(each)}: {_HOLDS[each.holds]}"
    others = [f"{name} {value:{'.3g' if value < _MANY else ',.0f'}}" for name, value in each.beside.items()]
    below = textwrap.fill("; ".join(others), _COLUMNS, initial_indent="  ", subsequent_indent="  ")
    return f"{each.name}: {_text(each.value)} {each.unit}{bar}\n{below}"


def _text(value: float) -> str:
    return f"{value:,.{2 if value >= 1 else 4}f}"


def _bar(measurement: Measurement) -> str:
    return "" if measurement.bar is None else f"{measurement.direction} {measurement.bar:g}"


if __name__ == "__main__":
    sys.exit(main())
