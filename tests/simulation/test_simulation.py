"""The simulation itself, and histories that failed once; `.ci/run` and `make simulate` make new ones."""

import asyncio
import contextlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.simulation.backlogs import BACKLOGS
from tests.simulation.event_loop import OrderedTaskGroup
from tests.simulation.history import Plan, run
from tests.simulation.judgement import disagreements, judged
from tests.simulation.kept import KEPT
from tests.simulation.mutants import Mutant, changed, module_of, mutants
from tests.simulation.reruns import RERUNS
from tests.simulation.topologies import TOPOLOGIES
from tests.simulation.topology import Topology

pytestmark = pytest.mark.long

_ROOT = Path(__file__).parents[2]


def simulate(*arguments: str, code: int = 0) -> str:
    done = subprocess.run(  # noqa: S603 - this package
        [sys.executable, "-m", "tests.simulation", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=_ROOT,
        env=os.environ | {"PYTHONPATH": str(_ROOT)},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("topology", [*TOPOLOGIES, *BACKLOGS, *RERUNS], ids=str)
def test_a_history_without_faults_has_no_duplicate(topology: Topology) -> None:
    history = run(Plan(1, topology.name, most_faults=0))
    assert history.objections == ()


@pytest.mark.parametrize(("seed", "topology"), KEPT)
def test_a_history_that_failed_once_does_not_fail_again(seed: int, topology: str | None) -> None:
    history = run(Plan(seed, topology), seed)
    assert history.objections == ()
    if history.evidence is not None:  # messages that are sent again have no journal
        assert list(disagreements(history.evidence, judged([history.evidence])[seed])) == []


@pytest.mark.parametrize("topology", ["ring of three", "evacuated dead letters", "repair of pair"])
def test_a_seed_makes_the_same_history_in_every_process(topology: str) -> None:
    story = simulate("--seed", "12", "--topology", topology)
    assert "digest" in story
    assert simulate("--seed", "12", "--topology", topology) == story


@pytest.mark.parametrize("option", ["--topology", "--mutant"])
def test_an_unknown_name_is_an_error_of_the_command(option: str) -> None:
    assert simulate(option, "nothing", "--histories", "1", code=2) == ""


def test_a_failing_history_is_shown_with_the_fewest_faults_and_the_path_of_a_message() -> None:
    mutant = "take an unavailable target as accepting"
    arguments = ("--mutant", mutant, "--stop", "--histories", "250", "--processes", "1")
    story = simulate(*arguments, "--topology", "pair", "--first", "1000", code=1)
    assert "make simulate seed=" in story
    assert "lost: " in story
    assert "faults:\n" in story
    assert "path of " in story


@pytest.mark.parametrize("mutant", mutants(), ids=lambda each: each.name)
def test_a_mutant_changes_one_place_of_a_module_that_is_imported_from_its_file(mutant: Mutant) -> None:
    compile(changed(mutant), mutant.file, "exec")
    found = find_spec(module_of(mutant))
    assert found is not None
    assert found.origin == str(Path(__file__).parents[2] / mutant.file)


def test_a_group_cancels_its_tasks_in_the_order_in_which_they_began() -> None:
    cancelled = []

    async def wait(number: int) -> None:
        try:
            await asyncio.sleep(60.0)
        finally:
            cancelled.append(number)

    async def end() -> None:
        async with OrderedTaskGroup() as group:
            for number in range(50):
                group.create_task(wait(number))
            await asyncio.sleep(0)
            raise LookupError

    with contextlib.suppress(ExceptionGroup):
        asyncio.run(end())
    assert cancelled == [*range(50)]
