"""
Mutants: faults in the product that a run of the simulation must find.

mutants.yaml has them. `python -m tests.simulation.mutants` plants them one after the other and prints after how many
histories each was found, and the seed that found it.
"""

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

import yaml

_ROOT = Path(__file__).parents[2]
_BY_JOB = 2_000
"""So many histories that the job judges some of them."""


class Mutant(NamedTuple):
    """A change of one place in one file."""

    name: str
    file: str
    old: str
    new: str


def mutants() -> list[Mutant]:
    """Return the mutants that are written down."""
    return [Mutant(**each) for each in yaml.safe_load((Path(__file__).parent / "mutants.yaml").read_text())]


def module_of(mutant: Mutant) -> str:
    """Return the name by which the module with the change is imported."""
    path = mutant.file.removesuffix(".py").removeprefix("broker/").removeprefix("jobs/reconcile/")
    return path.replace("/", ".")


def plant(name: str) -> None:
    """Let the modules that are imported from now on have the mutant *name*."""
    mutant = next(mutant for mutant in mutants() if mutant.name == name)
    sys.meta_path.insert(0, _Planter(mutant))


class _Planter(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module with the change."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._module = module_of(mutant)

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None,  # noqa: ARG002 - the signature of a finder
        target: ModuleType | None = None,  # noqa: ARG002 - likewise
    ) -> importlib.machinery.ModuleSpec | None:
        """Return this loader for the module."""
        if name != self._module:
            return None
        return importlib.util.spec_from_file_location(name, _ROOT / self._mutant.file, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        """Run the changed source."""
        code: CodeType = compile(changed(self._mutant), str(_ROOT / self._mutant.file), "exec")
        exec(code, module.__dict__)  # noqa: S102 - it is that of the product, except one place


def changed(mutant: Mutant) -> str:
    """Return the source of its file with the change; ValueError unless there is exactly one place for it."""
    source = (_ROOT / mutant.file).read_text()
    if source.count(mutant.old) != 1:
        raise ValueError(f"{mutant.name}: {source.count(mutant.old)} places in {mutant.file}, expected one")
    return source.replace(mutant.old, mutant.new)


def main() -> int:
    """Plant each mutant and look for it."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("--histories", type=int, default=20_000, help="how many at most for each (20000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--only", default="", help="mutants with this text in their names")
    options = parser.parse_args()
    wanted = [mutant for mutant in mutants() if options.only in mutant.name]
    found = 0
    print(f"{'mutant':<66}{'found after':>12}{'seed':>12}{'seconds':>10}")
    for mutant in wanted:
        started = time.monotonic()
        command = [sys.executable, "-m", "tests.simulation", "--stop", "--mutant", mutant.name]
        # Only the job itself finds a fault of its judgement, which takes a while, however many are judged.
        histories = min(options.histories, _BY_JOB) if mutant.file.startswith("jobs/") else options.histories
        command += ["--histories", str(histories), "--first", str(options.first)]
        done = subprocess.run(  # noqa: S603 - this package
            command, capture_output=True, text=True, check=False, cwd=_ROOT, env=os.environ
        )
        count = re.search(r"^([\d,]+) histories", done.stdout, re.MULTILINE)
        after = "not found" if done.returncode == 0 else count[1] if count is not None else "broken"
        found += done.returncode != 0 and count is not None
        seed = re.search(r"^make simulate seed=(\d+)", done.stdout, re.MULTILINE)
        print(
            f"{mutant.name:<66}{after:>12}{'' if seed is None else seed[1]:>12}{time.monotonic() - started:>10.0f}",
            flush=True,
        )
    print(f"{found} of {len(wanted)} found")
    return 0 if found >= len(wanted) - 2 else 1


if __name__ == "__main__":
    sys.exit(main())
