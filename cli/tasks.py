"""The tasks that a command line names."""

from collections.abc import Iterable

from shared.errors import ConfigError, Problem
from shared.resend.places import task_named
from shared.tasks.files import Configuration
from shared.tasks.models import TaskFile


def tasks_named(names: Iterable[str], configuration: Configuration, option: str = "") -> list[TaskFile]:
    """Return the tasks of these *names*, each once; raises ConfigError with every unknown one, as value of *option*."""
    found = {name: task_named(name, configuration) for name in names}
    expected = f"expected one of {', '.join(task.task for task in configuration.tasks)}"
    problems = [
        Problem(f"{option} {name}".strip(), "unknown task", expected) for name, task in found.items() if task is None
    ]
    if problems:
        raise ConfigError(problems)
    return list({task.task: task for task in found.values() if task is not None}.values())


def single_task(name: str, configuration: Configuration, option: str = "") -> TaskFile:
    """Return the task of this *name*; raises ConfigError."""
    (task,) = tasks_named([name], configuration, option)
    return task
