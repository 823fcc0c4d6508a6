"""The golden case of each editor: its task, its settings and the messages that it receives."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import yaml

from cli.dry_run.line import NoOutput
from shared.assembly.pipelines import assemble
from shared.clock import ManualClock
from shared.line.task import Task
from shared.tasks.files import load
from shared.tasks.models import TaskFile
from shared.testing import NOW
from tests.golden.test_tasks import Play, settings_of, written
from tools.reference.editor_pages import case_of


class Case(NamedTuple):
    """A golden case of an editor, up to what its task receives."""

    folder: Path
    settings: dict[str, str]
    task: TaskFile
    contents: tuple[bytes, ...]


@cache
def prepared(verb: str) -> Case:
    """Return the case of an editor by its verb."""
    case = yaml.safe_load(case_of(verb).read_text(encoding="utf-8"))
    folder = Path(_FOLDER.name, verb)
    folder.mkdir(exist_ok=True)
    settings = settings_of(case, folder)
    play = Play(written(case, folder), settings)
    task = [task for task in load(folder).tasks if verb in [step.verb() for step in task.editors]][-1]
    contents: list[bytes] = []
    for step in case["steps"]:
        if step["task"] == task.task:
            contents += [play._content(number, each) for number, each in enumerate(step["deliver"], 1)]
        elif contents:
            break
        else:
            play.step(step)
    return Case(folder, settings, task, tuple(contents))


_FOLDER = TemporaryDirectory()


def assembled_task(case: Case, *, dry_run: bool = False) -> Task:
    """Return the task of *case*, whose outputs send nothing."""
    configuration = load(case.folder)
    outputs = {alias: NoOutput() for alias in configuration.connections}
    tasks = assemble(configuration, outputs, settings=case.settings, clock=ManualClock(NOW), dry_run=dry_run)
    return next(task for task in tasks if task.name == case.task.task)
