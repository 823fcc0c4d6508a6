"""Stores for state that must outlive an instance."""

from typing import Annotated

from pydantic import Field

from shared.editors.options import Strict, TaskFacts
from shared.errors import ConfigError, Problem
from shared.stores.blobs import Blobs
from shared.stores.dry_run import DryRunBlobs
from shared.stores.settings import open_blobs, store_problem

type SettingName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]
type ContainerName = Annotated[str, Field(pattern=r"^[a-z0-9](-?[a-z0-9]){2,62}$")]


def open_store(task: TaskFacts, place: str, setting: str, container: str) -> Blobs:
    """Return the store of an app setting; raises ConfigError if it cannot be used."""
    problem = store_problem(setting, task.settings)
    if problem is not None:
        where = f"task {task.name}: {place}: app setting {problem.path}"
        raise ConfigError([Problem(where, problem.problem, problem.hint)])
    blobs = open_blobs(setting, task.settings, container)
    return DryRunBlobs(blobs) if task.dry_run else blobs


class Store(Strict):
    """A container of a storage account."""

    setting: SettingName
    """App setting of a storage account, or `file:PATH`."""
    container: ContainerName
    """Container; it is created if it is missing."""

    def open(self, task: TaskFacts, place: str) -> Blobs:
        """Return the store; raises ConfigError if the app setting cannot be used."""
        return open_store(task, place, self.setting, self.container)
