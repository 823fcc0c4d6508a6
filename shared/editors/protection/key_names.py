"""The names of keys in tasks: those of the secrets that hold them, which must exist as far as that can be checked."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from shared.editors.options import Strict, TaskFacts
from shared.editors.protection.bound_properties import BoundNames
from shared.errors import ConfigError, Problem
from shared.message.message import Message
from shared.protocols import BatchEditor, Withheld

if TYPE_CHECKING:
    from shared.editors.protection.keys import KeyRing

type KeyName = Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,127}$")]
"""Name of a secret that holds a JSON Web Key, or a JSON Web Key Set whose last key is the newest."""
type KeyId = Annotated[str, Field(min_length=1)]
type Algorithm = Literal["A256KW", "dir", "RSA-OAEP-256", "ECDH-ES+A256KW"]
type ContentEncryption = Literal["A256GCM", "A128GCM", "A128CBC-HS256", "A256CBC-HS512"]


class SealingOptions(Strict):
    """The key and the algorithms of an encryption."""

    key: KeyName
    """Name of the secret with a JSON Web Key, or a set, of which the last one is used."""
    kid: KeyId | None = None
    """Id of the key to use, if it is not the last of the set."""
    alg: Algorithm | None = None
    """Algorithm of the key; by default its own `alg`, or that of its kind; `dir` encrypts with the key itself."""
    enc: ContentEncryption = "A256GCM"
    """Algorithm that encrypts the content."""
    bind: BoundNames | None = None
    """Properties, such as sys.MessageId, that must be the same at decryption."""


def check_key(task: TaskFacts, place: str, name: str) -> None:
    """Raise ConfigError if the secret is known to be missing, without reading it."""
    problem = task.secrets.problem(name)
    if problem is not None:
        where = f"task {task.name}: {place}: secret {name}: app setting {problem.path}"
        raise ConfigError([Problem(where, problem.problem, problem.hint)])


def keyed(
    task: TaskFacts,
    verb: str,
    key: str,
    edit: "Callable[[Message, KeyRing], Message | Withheld]",
    *,
    drops: bool = False,
) -> BatchEditor:
    """Return an editor that calls *edit* with the keys of a secret; raises ConfigError as `check_key`."""
    from shared.editors.protection.keys import Keyed, KeyRings  # noqa: PLC0415 - only tasks with keys load the library

    check_key(task, f"{verb}.key", key)
    return Keyed(verb, KeyRings(key, task), edit, drops=drops)
