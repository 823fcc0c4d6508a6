"""The validate editor: what does not keep to the rules of a border does not pass it."""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from shared.codecs.json import read
from shared.editors.body import content_of, size_of
from shared.editors.json_schema import JsonSchema, SchemaFile
from shared.editors.options import SYSTEM_NAMES, MediaType, Step, Strict, TaskFacts
from shared.errors import MessageRejected
from shared.message import Message
from shared.protocols import Withheld
from shared.routing import RuleProperties
from shared.rules import SYSTEM_PROPERTIES

_SYSTEM = "sys."


def _existing(name: str) -> str:
    if name.lower().startswith(_SYSTEM) and name[len(_SYSTEM) :].lower() not in SYSTEM_PROPERTIES:
        raise ValueError(f"names {name}, expected sys. and one of {', '.join(SYSTEM_NAMES)}")
    return name


type PropertyName = Annotated[str, Field(min_length=1), AfterValidator(_existing)]


class ValidateOptions(Strict):
    """What a message has to be like; at least one thing."""

    body_schema: SchemaFile | None = Field(None, alias="schema")
    """File with a JSON Schema (2020-12) for the body, by its path in the folder of connections.yaml."""
    required_properties: Annotated[tuple[PropertyName, ...], Field(strict=False, min_length=1)] | None = None
    """Application properties, in any case, or broker properties as sys.MessageId; one that is null is missing."""
    content_type: MediaType | None = None
    """Media type of the body, in any case; its parameters, such as a charset, are not compared."""
    max_size: Annotated[int, Field(ge=0)] | None = None
    """Bytes of the body at most; of a sequence, and of a value that is no string or binary, as it is encoded."""
    on_failure: Literal["reject", "drop"] = "reject"
    """`reject` sends the message to `rejects` with the reason, `drop` withholds it; both are journalled."""

    @model_validator(mode="after")
    def _checks_something(self) -> Self:
        if (self.body_schema, self.required_properties, self.content_type, self.max_size) == (None,) * 4:
            raise ValueError("checks nothing, expected schema, required_properties, content_type or max_size")
        return self


class ValidateStep(Step):
    """Lets through the messages that are as they have to be; the others are rejected, or withheld and journalled."""

    keeps_properties: ClassVar[bool] = True
    options: ValidateOptions = Field(alias="validate")

    def editor(self, _: TaskFacts, /) -> "Validate":
        """Return the editor that does what the options say."""
        return Validate(self.options)


class Validate:
    """
    Lets through the messages that are as they have to be.

    The body is that of data sections, or a value that is a string or a binary; with a schema every other body is at
    fault. What is said of a message names the place in it and what was expected there, never what stands there.
    """

    name = "validate"

    def __init__(self, options: ValidateOptions) -> None:
        """Check what *options* name."""
        self._schema: JsonSchema | None = options.body_schema
        self._required = options.required_properties or ()
        self._content_type = options.content_type
        self._max_size = options.max_size
        self._drops = options.on_failure == "drop"

    def edit(self, message: Message) -> Sequence[Message] | Withheld:
        """Return the message; one at fault is withheld, or MessageRejected is raised."""
        try:
            self._check(message)
        except MessageRejected as error:
            if self._drops:
                return Withheld(f"{self.name}: {error}")
            raise MessageRejected(error.reason, f"{self.name}: {error.description}") from error
        return (message,)

    def _check(self, message: Message) -> None:
        if self._content_type is not None:
            _check_content_type(message.content_type, self._content_type)
        if self._required:
            self._check_properties(message)
        if self._max_size is None and self._schema is None:
            return
        # Encoded, a body is longer than what it says, so that one within the limit need not be looked at.
        if self._max_size is not None and len(message.sections.body) > self._max_size:
            size = size_of(message)
            if size > self._max_size:
                raise MessageRejected("BodyTooLarge", f"body has {size} bytes, expected at most {self._max_size}")
        if self._schema is not None:
            self._schema.check(read(content_of(message)))

    def _check_properties(self, message: Message) -> None:
        properties = RuleProperties(message)
        missing = [name for name in self._required if not _has(properties, name)]
        if missing:
            raise MessageRejected("PropertyMissing", f"has no property {', '.join(missing)}")


def _check_content_type(seen: str | None, expected: str) -> None:
    if seen is None:
        raise MessageRejected("WrongContentType", f"has no content type, expected {expected}")
    if seen.partition(";")[0].strip().lower() != expected.lower():
        raise MessageRejected("WrongContentType", f"has another content type than {expected}")


def _has(properties: RuleProperties, name: str) -> bool:
    lower = name.lower()
    if lower.startswith(_SYSTEM):
        value = properties.system(SYSTEM_PROPERTIES[lower[len(_SYSTEM) :]].name)
    else:
        value = properties.user(lower)
    return value is not None and value.payload is not None
