"""Where editors keep what has to outlive an instance."""

from typing import Annotated

from pydantic import Field

from shared.editors.options import Strict, TaskFacts
from shared.errors import ConfigError, Problem
from shared.stores.blobs import Blobs
from shared.stores.dry_run import DryRunBlobs
from shared.stores.settings import open_blobs, store_problem

type SettingName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]
type ContainerName = Annotated[str, Field(pattern=r"^[a-z0-9](-?[a-z0-9]){2,62}$")]


def opened_store(task: TaskFacts, place: str, setting: str, container: str) -> Blobs:
    """Return the store that an app setting names; raises ConfigError where it cannot be used."""
    problem = store_problem(setting, task.settings)
    if problem is not None:
        where = f"task {task.name}: {place}: app setting {problem.path}"
        raise ConfigError([Problem(where, problem.problem, problem.hint)])
    blobs = open_blobs(setting, task.settings, container)
    return DryRunBlobs(blobs) if task.dry_run else blobs


class Store(Strict):
    """A container of a storage account."""

    setting: SettingName
    """App setting of a storage account, as of a connection, or with `file:PATH`, a file for an app on one machine."""
    container: ContainerName
    """Container in the storage account, which is made if it is not there."""

    def open(self, task: TaskFacts, place: str) -> Blobs:
        """Return the store; raises ConfigError where the app setting cannot be used."""
        return opened_store(task, place, self.setting, self.container)
