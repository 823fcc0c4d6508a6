"""
The base types of editors' options.

Each editor has its own file, with a `Step`, which is its entry in a task file, and the editor that the step creates.
The step's only field has the editor's verb as its alias. `shared.tasks.steps.STEPS` lists the steps.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, WithJsonSchema

from shared.clock import Clock
from shared.durations import written
from shared.errors import ConfigError
from shared.message.arrival import Arrival, Origin
from shared.message.message import Message
from shared.protocols import BatchEditor, Editor, Outcome, Secrets, Withheld
from shared.rules import SYSTEM_PROPERTIES, Action, SqlFilter, parse_action, parse_filter, unknown_system_properties
from shared.time_limit import DEFAULT_SECONDS

FOLDER = "folder"
"""Key of the configuration folder, a Path, in the validation context."""


def _as_written(value: object) -> object:
    # Other text, and a duration that is too long, is refused by pydantic.
    with contextlib.suppress(OverflowError):
        if isinstance(value, str) and (duration := written(value)) is not None:
            return duration
    return value


DURATION_PATTERN = r"^([0-9]+([.][0-9]+)? ?(ms|[smhdwSMHDW])|[Pp].+)$"
"""That of a duration in JSON schemas, for editors."""
AS_WRITTEN = BeforeValidator(_as_written, json_schema_input_type=Annotated[str, Field(pattern=DURATION_PATTERN)])
"""Lets a duration be written as people do: 80ms, 5m, 2h, or ISO 8601."""

Off = Annotated[Literal[False], WithJsonSchema({"enum": ["off", False]})]
"""The word `off`: a boolean in the YAML of Busway, and a text in that of most editors, which follow YAML 1.2."""


class TaskFacts(NamedTuple):
    """The facts about a task and the resources that an editor can use."""

    name: str
    origin: Origin
    settings: Mapping[str, str]
    """The app settings."""
    secrets: Secrets
    clock: Clock
    dry_run: bool = False
    """
    Whether this is `busway try`, where nothing is sent and nothing may change. `BatchEditor.settled` is never called;
    an editor that writes to a store in `edit_batch` still reads from it, and keeps what it writes in memory.
    """
    edit_seconds: float = DEFAULT_SECONDS
    """The processor time that an editor may take for a message."""


class Strict(BaseModel):
    """A mapping in which an unknown key or a value of another type is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class Step(Strict, ABC):
    """One editor with its options: a mapping whose only key is the editor's verb."""

    # What `busway check` can assume about a message after the editor; by default every property may have changed.
    keeps_properties: ClassVar[bool] = False
    """Whether all application properties stay, except those in `may_set`."""
    sets: ClassVar[frozenset[str]] = frozenset()
    """The application properties, in lower case, that it may set or remove whatever its options are."""
    keeps_content_type: ClassVar[bool] = True
    """Whether the content type stays."""

    def may_set(self) -> frozenset[str]:
        """Return the application properties, in lower case, that it may set or remove if it keeps the others."""
        return self.sets

    @classmethod
    def verb(cls) -> str:
        """Return the key by which task files name the editor."""
        (field,) = cls.model_fields.values()
        return field.alias or ""

    def __hash__(self) -> int:
        # Options may be mappings, and tasks, which hold steps, are keys.
        return hash(type(self))

    def prepare(self) -> None:
        """Make what depends on the options alone, so that the first message does not wait for it."""
        for name, each in vars(type(self)).items():
            if isinstance(each, cached_property):
                getattr(self, name)

    @abstractmethod
    def editor(self, task: TaskFacts, /) -> Editor | BatchEditor:
        """Return the editor with these options; raises ConfigError for missing or invalid app settings."""


@dataclass
class MessageEditor:
    """An editor of messages one by one."""

    name: str
    edit: Callable[[Message], Sequence[Message] | Withheld]


class MessageStep(Step):
    """A step that edits messages one by one, by its options alone."""

    def editor(self, _: TaskFacts, /) -> Editor:
        """Return the editor that this step is."""
        self.prepare()
        return MessageEditor(self.verb(), self.edit)

    @abstractmethod
    def edit(self, message: Message) -> Sequence[Message] | Withheld:
        """Return what replaces *message*, nothing to filter it; raises MessageRejected."""


class Stateless:
    """What is common to editors of batches that keep nothing for the settlement and join no messages."""

    joins = False

    async def settled(self, outcomes: Sequence[tuple[Arrival, Outcome]], *, timeout_seconds: float) -> None:
        """Do nothing."""


def _parsed_by(parse: Callable[[str], SqlFilter | Action]) -> Callable[[str], str]:
    """Return a validator of rules: they must be valid and name only existing broker properties."""

    # Thousands of tasks have the same few rules.
    @lru_cache(maxsize=4096)
    def checked(text: str) -> str:
        try:
            unknown = unknown_system_properties(parse(text))
        except ConfigError as error:
            raise ValueError(str(error)) from error
        if unknown:
            raise ValueError(f"names sys.{unknown[0]}, expected one of {', '.join(SYSTEM_NAMES)}")
        return text

    return checked


SYSTEM_NAMES = sorted({system_property.name for system_property in SYSTEM_PROPERTIES.values()})

type FilterText = Annotated[str, AfterValidator(_parsed_by(parse_filter))]
type ActionText = Annotated[str, AfterValidator(_parsed_by(parse_action))]


def _compiled(text: str) -> "Expression":
    from shared.editors.content.expression import Expression  # noqa: PLC0415 - only some tasks need the library

    return Expression(text)


if TYPE_CHECKING:
    from shared.editors.content.expression import Expression

    type ExpressionText = Expression
else:
    type ExpressionText = Annotated[str, Field(min_length=1), AfterValidator(_compiled)]
"""A compiled JMESPath expression, written as text."""

type MediaType = Annotated[str, Field(pattern=r"^[^/;\s]+/[^/;\s]+$")]


def configured_file(name: str, info: ValidationInfo) -> Path:
    """Return the path of file *name* in the configuration folder; raises ValueError if it is outside."""
    folder = (info.context or {}).get(FOLDER)
    if folder is None:
        raise ValueError(f"names the file {name}, but there is no configuration folder")
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ValueError(f"names the file {name}, expected one below the folder of connections.yaml")
    return Path(folder) / path
