"""The names of keys in tasks: those of the secrets that hold them, which must exist as far as that can be checked."""

from typing import Annotated

from pydantic import Field

from shared.editors.options import TaskFacts
from shared.errors import ConfigError, Problem

type KeyName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,127}$")]
"""Name of a secret that holds a JSON Web Key, or a JSON Web Key Set whose last key is the newest."""
type KeyId = Annotated[str, Field(min_length=1)]


def check_key(task: TaskFacts, place: str, name: str) -> None:
    """Raise ConfigError if the secret is known to be missing, without reading it."""
    problem = task.secrets.problem(name)
    if problem is not None:
        where = f"task {task.name}: {place}: secret {name}: app setting {problem.path}"
        raise ConfigError([Problem(where, problem.problem, problem.hint)])
