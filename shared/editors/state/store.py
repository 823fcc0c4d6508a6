"""Stores for state that must outlive an instance."""

from typing import Annotated

from pydantic import Field

from shared.editors.options import Strict, TaskFacts
from shared.errors import ConfigError, Problem
from shared.stores.blobs import Blobs
from shared.stores.documents import Documents
from shared.stores.dry_run import DryRunBlobs, DryRunDocuments
from shared.stores.settings import open_blobs, open_documents, store_problem

type SettingName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]
type ContainerName = Annotated[str, Field(pattern=r"^[a-z0-9](-?[a-z0-9]){2,62}$")]


class Store(Strict):
    """A container of a storage account."""

    setting: SettingName
    """App setting of a storage account, or `file:PATH`."""
    container: ContainerName
    """Container; it is created if it is missing."""

    def open(self, task: TaskFacts, place: str) -> Blobs:
        """Return a store of blobs; raises ConfigError if the app setting cannot be used."""
        self._check(task, place)
        blobs = open_blobs(self.setting, task.settings, self.container)
        return DryRunBlobs(blobs) if task.dry_run else blobs

    def open_documents(self, task: TaskFacts, place: str) -> Documents:
        """Return a store of documents; raises as `open`."""
        self._check(task, place)
        documents = open_documents(self.setting, task.settings, self.container)
        return DryRunDocuments(documents) if task.dry_run else documents

    def _check(self, task: TaskFacts, place: str) -> None:
        problem = store_problem(self.setting, task.settings)
        if problem is not None:
            where = f"task {task.name}: {place}: app setting {problem.path}"
            raise ConfigError([Problem(where, problem.problem, problem.hint)])
