"""The validate editor: checks of messages before they cross a border."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, BaseModel, Discriminator, Field, Tag, model_validator

from shared.amqp.values import string
from shared.editors.content.body import content_of, size_of
from shared.editors.content.formats import AvroFile, AvroForm, SchemaId, avro_reader
from shared.editors.content.json_schema import SchemaFile
from shared.editors.options import SYSTEM_NAMES, MediaType, MessageStep, Strict
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


class ValidateStep(MessageStep):
    """Lets valid messages through; others are rejected, withheld, or marked for a route."""

    keeps_properties: ClassVar[bool] = True
    options: ValidateOptions = Field(alias="validate")

    def may_set(self) -> frozenset[str]:
        """Return the property with which it marks messages."""
        mark = self.options.on_failure
        return frozenset() if isinstance(mark, str) else frozenset((mark.mark.lower(),))

    @cached_property
    def _check_body(self) -> Callable[[bytes], object] | None:
        options = self.options
        if options.body_schema is not None:
            return options.body_schema.check
        return None if options.avro is None else avro_reader(options.avro, options.form)

    def edit(self, message: Message) -> Sequence[Message] | Withheld:
        """
        Return the message; an invalid one is withheld or marked, or MessageRejected is raised.

        With a schema, the body must be data sections, or a value that is a string or binary. Problems name the path and
        the expectation, and never quote the body.
        """
        on_failure = self.options.on_failure
        mark = on_failure.mark if isinstance(on_failure, Mark) else None
        try:
            self._check(message)
        except MessageRejected as error:
            if on_failure == "drop":
                return Withheld(str(error))
            if mark is None:
                raise
            message.set_properties({mark: string(str(error))})
            return (message,)
        # A mark from the sender, or from an earlier hop, would route a valid message as an invalid one.
        if mark is not None and message.application_property(mark) is not None:
            message.set_properties({mark: None})
        return (message,)

    def _check(self, message: Message) -> None:
        options = self.options
        if options.content_type is not None:
            _check_content_type(message.content_type, options.content_type)
        if options.required_properties is not None:
            _check_properties(message, options.required_properties)
        # The content is never longer than its encoding: a body of any kind that is short enough is not decoded.
        if options.max_size is not None and len(message.sections.body) > options.max_size:
            size = size_of(message)
            if size > options.max_size:
                raise MessageRejected("BodyTooLarge", f"body has {size} bytes, expected at most {options.max_size}")
        if options.avro is not None and options.form == "raw":
            from shared.codecs.avro import check_schema_id  # noqa: PLC0415 - loaded by tasks that need it

            check_schema_id(message.content_type, options.schema_id)
        if self._check_body is not None:
            self._check_body(content_of(message))


def _check_properties(message: Message, required: Sequence[str]) -> None:
    properties = RuleProperties(message)
    missing = [name for name in required if not _has(properties, name)]
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
