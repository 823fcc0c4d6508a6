"""The validate editor: checks of messages before they cross a border."""

from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, Discriminator, Field, Tag, model_validator

from shared.amqp.values import string
from shared.editors.content.body import content_of, size_of
from shared.editors.content.formats import AvroFile, AvroForm, SchemaId, avro_reader
from shared.editors.content.json_schema import JsonSchema, SchemaFile
from shared.editors.options import SYSTEM_NAMES, MediaType, Step, Strict, TaskFacts
from shared.errors import MessageRejected
from shared.message.message import Message
from shared.message.rule_properties import SYSTEM, RuleProperties
from shared.protocols import Withheld
from shared.rules import SYSTEM_PROPERTIES


def _existing(name: str) -> str:
    if name.lower().startswith(SYSTEM) and name[len(SYSTEM) :].lower() not in SYSTEM_PROPERTIES:
        raise ValueError(f"names {name}, expected sys. and one of {', '.join(SYSTEM_NAMES)}")
    return name


type PropertyName = Annotated[str, Field(min_length=1), AfterValidator(_existing)]


class Mark(Strict):
    """A property on invalid messages, for `when` in the routes."""

    mark: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]
    """Application property with the problem; valid messages never have it."""


class ValidateOptions(Strict):
    """The checks, at least one."""

    body_schema: SchemaFile | None = Field(None, alias="schema")
    """File with a JSON Schema (2020-12) for the body, its path in the configuration folder."""
    avro: AvroFile | None = None
    """File with an Avro schema for the body, its path in the configuration folder; not together with `schema`."""
    form: AvroForm = Field("container", alias="as")
    """Form of Avro: `container` (its own schema may differ if Avro can resolve it), `single_object` or `raw`."""
    schema_id: SchemaId | None = None
    """For `as: raw`: the id of the Avro schema in a registry, for bodies of the content type `avro/binary+ID`."""
    required_properties: Annotated[tuple[PropertyName, ...], Field(strict=False, min_length=1)] | None = None
    """Application properties, in any case, or broker properties as sys.MessageId; null counts as missing."""
    content_type: MediaType | None = None
    """Media type of the body, in any case; parameters such as charset are ignored."""
    max_size: Annotated[int, Field(ge=0)] | None = None
    """Largest body in bytes; for a sequence, or a value other than a string or binary, the size of its encoding."""
    on_failure: Annotated[
        Annotated[Literal["reject", "drop"], Tag("word")] | Annotated[Mark, Tag("mapping")],
        Discriminator(lambda value: "mapping" if isinstance(value, (dict, BaseModel)) else "word"),
    ] = "reject"
    """`reject` sends the message to `rejects` with the reason, `drop` withholds it, `{mark: NAME}` sets a property."""

    @model_validator(mode="after")
    def _checks_something(self) -> Self:
        checks = (self.body_schema, self.avro, self.required_properties, self.content_type, self.max_size)
        if all(check is None for check in checks):
            raise ValueError("checks nothing, expected schema, avro, required_properties, content_type or max_size")
        if self.body_schema is not None and self.avro is not None:
            raise ValueError("has schema and avro, expected one: a body is either JSON or Avro")
        if self.avro is None and "form" in self.model_fields_set:
            raise ValueError("has `as` without avro, expected both")
        if self.schema_id is not None and self.form != "raw":
            raise ValueError("has schema_id without `as: raw`, expected both: other forms name their schema themselves")
        return self


class ValidateStep(Step):
    """Lets valid messages through; others are rejected, withheld, or marked for a route."""

    keeps_properties: ClassVar[bool] = True
    options: ValidateOptions = Field(alias="validate")

    def may_set(self) -> frozenset[str]:
        """Return the property with which it marks messages."""
        mark = self.options.on_failure
        return frozenset() if isinstance(mark, str) else frozenset((mark.mark.lower(),))

    def editor(self, _: TaskFacts, /) -> "Validate":
        """Return the editor with these options."""
        return Validate(self.options)


class Validate:
    """
    Lets valid messages through.

    With a schema, the body must be data sections, or a value that is a string or binary. Problems name the path and the
    expectation, and never quote the body.
    """

    name = "validate"

    def __init__(self, options: ValidateOptions) -> None:
        """Check by *options*."""
        schema: JsonSchema | None = options.body_schema
        self._check_body: Callable[[bytes], object] | None = None
        if schema is not None:
            self._check_body = schema.check
        elif options.avro is not None:
            self._check_body = avro_reader(options.avro, options.form)
        self._is_raw_avro = options.avro is not None and options.form == "raw"
        self._schema_id = options.schema_id
        self._required = options.required_properties or ()
        self._content_type = options.content_type
        self._max_size = options.max_size
        self._drops = options.on_failure == "drop"
        self._mark = options.on_failure.mark if isinstance(options.on_failure, Mark) else None

    def edit(self, message: Message) -> Sequence[Message] | Withheld:
        """Return the message; an invalid one is withheld or marked, or MessageRejected is raised."""
        try:
            self._check(message)
        except MessageRejected as error:
            if self._drops:
                return Withheld(str(error))
            if self._mark is None:
                raise
            message.set_properties({self._mark: string(str(error))})
            return (message,)
        # A mark from the sender, or from an earlier hop, would route a valid message as an invalid one.
        if self._mark is not None and message.application_property(self._mark) is not None:
            message.set_properties({self._mark: None})
        return (message,)

    def _check(self, message: Message) -> None:
        if self._content_type is not None:
            _check_content_type(message.content_type, self._content_type)
        if self._required:
            self._check_properties(message)
        # The content is never longer than its encoding: a body of any kind that is short enough is not decoded.
        if self._max_size is not None and len(message.sections.body) > self._max_size:
            size = size_of(message)
            if size > self._max_size:
                raise MessageRejected("BodyTooLarge", f"body has {size} bytes, expected at most {self._max_size}")
        if self._is_raw_avro:
            from shared.codecs.avro import check_schema_id  # noqa: PLC0415 - loaded by tasks that need it

            check_schema_id(message.content_type, self._schema_id)
        if self._check_body is not None:
            self._check_body(content_of(message))

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
    value = properties.named(name)
    return value is not None and value.payload is not None
