"""
What editors declare their options with.

An editor is one file: its `Step`, which is its line in a task file, and the editor that the step makes. The step's one
field has the editor's verb as its alias. `shared.config.steps.STEPS` lists the steps.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Annotated, ClassVar, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo

from shared.clock import Clock
from shared.errors import ConfigError
from shared.message.message import Origin
from shared.protocols import BatchEditor, Editor, Secrets
from shared.rules import SYSTEM_PROPERTIES, Action, SqlFilter, parse_action, parse_filter, unknown_system_properties

FOLDER = "folder"
"""Key of the validation context under which the configuration folder stands, a Path."""


class TaskFacts(NamedTuple):
    """What an editor may know of the task that it works in, and what it may ask for."""

    name: str
    origin: Origin
    settings: Mapping[str, str]
    """The app settings."""
    secrets: Secrets
    clock: Clock
    dry_run: bool = False
    """
    Nothing is sent and nothing may change: `busway try`. `BatchEditor.settled` is never called then; an editor whose
    `edit_batch` writes to a store reads from it still, and keeps what it writes for as long as it lives.
    """


class Strict(BaseModel):
    """A mapping in which an unknown key or a value of another type is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class Step(Strict, ABC):
    """One editor with its options: a mapping whose only key is the editor's verb."""

    # What `busway check` can say of a message behind the editor; one that says nothing may change every property.
    keeps_properties: ClassVar[bool] = False
    """Whether all application properties are what they were, but for those that `may_set` names."""
    keeps_content_type: ClassVar[bool] = True
    """Whether the content type is what it was."""

    def may_set(self) -> frozenset[str]:
        """Return the application properties, in lower case, that it may set or remove where it keeps the others."""
        return frozenset()

    @classmethod
    def verb(cls) -> str:
        """Return the key by which task files name the editor."""
        (field,) = cls.model_fields.values()
        return field.alias or ""

    def __hash__(self) -> int:
        # Options may be mappings, and tasks, which hold steps, are keys.
        return hash(type(self))

    @abstractmethod
    def editor(self, task: TaskFacts, /) -> Editor | BatchEditor:
        """Return the editor that does what the options say; raises ConfigError where the app's settings forbid it."""


def _parsed_by(parse: Callable[[str], SqlFilter | Action]) -> Callable[[str], str]:
    """Return a validator that lets through the text of a rule that can be parsed and names properties that exist."""

    def checked(text: str) -> str:
        try:
            unknown = unknown_system_properties(parse(text))
        except ConfigError as error:
            raise ValueError(str(error)) from error
        if unknown:
            raise ValueError(f"names sys.{unknown[0]}, expected one of {', '.join(SYSTEM_NAMES)}")
        return text

    return checked


SYSTEM_NAMES = sorted({each.name for each in SYSTEM_PROPERTIES.values()})

type FilterText = Annotated[str, AfterValidator(_parsed_by(parse_filter))]
type ActionText = Annotated[str, AfterValidator(_parsed_by(parse_action))]


def _compiled(text: str) -> str:
    """Let through the text of an expression that can be compiled."""
    from shared.editors.content.expression import Expression  # noqa: PLC0415 - loads a library that few tasks need

    Expression(text)
    return text


type ExpressionText = Annotated[str, Field(min_length=1), AfterValidator(_compiled)]
"""A JMESPath expression, with the functions of `shared.editors.content.expression`."""

type MediaType = Annotated[str, Field(pattern=r"^[^/;\s]+/[^/;\s]+$")]


def configured_file(name: str, info: ValidationInfo) -> Path:
    """Return the file *name* of the configuration folder, which may be missing; ValueError where it lies outside."""
    folder = (info.context or {}).get(FOLDER)
    if folder is None:
        raise ValueError(f"names the file {name}, and there is no configuration folder here to find it in")
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"names the file {name}, expected one below the folder of connections.yaml")
    return Path(folder) / path
