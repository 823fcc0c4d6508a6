"""Body formats in task files; a task loads only the libraries of its formats."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from shared.codecs.plain import Codec
from shared.codecs.text import charset
from shared.editors.options import Strict, configured_file

if TYPE_CHECKING:
    from shared.codecs.avro import AvroSchema

type AvroForm = Literal["container", "raw", "single_object"]
type SchemaId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,128}$")]


def _content(name: object, info: ValidationInfo) -> bytes:
    """Return the content of a file in the configuration folder; raises ValueError if it cannot be read."""
    if not isinstance(name, str):
        raise ValueError("expected the name of a file")  # noqa: TRY004 - pydantic collects ValueErrors
    try:
        return configured_file(name, info).read_bytes()
    except FileNotFoundError as error:
        raise ValueError(f"{name}: the file is missing") from error
    except OSError as error:
        raise ValueError(f"{name}: the file cannot be read: {error.strerror}") from error


def _avro_schema(name: object, info: ValidationInfo) -> "AvroSchema":
    from shared.codecs.avro import AvroSchema  # noqa: PLC0415 - loaded by tasks that need it

    content = _content(name, info)
    try:
        return AvroSchema(content)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


type AvroFile = Annotated[Any, PlainValidator(_avro_schema), WithJsonSchema({"type": "string", "minLength": 1})]
type File = Annotated[bytes, PlainValidator(_content), WithJsonSchema({"type": "string", "minLength": 1})]


class JsonFormat(Strict):
    """JSON in UTF-8, `application/json`."""

    format: Literal["json"]

    def codec(self, _: str) -> Codec:
        """Return the codec."""
        from shared.codecs.plain_json import PlainJson  # noqa: PLC0415 - loaded by tasks that need it

        return PlainJson()


class CborFormat(Strict):
    """CBOR, `application/cbor`."""

    format: Literal["cbor"]

    def codec(self, _: str) -> Codec:
        """Return the codec."""
        from shared.codecs.cbor import Cbor  # noqa: PLC0415 - loaded by tasks that need it

        return Cbor()


class MessagePackFormat(Strict):
    """MessagePack, `application/vnd.msgpack`."""

    format: Literal["messagepack"]

    def codec(self, _: str) -> Codec:
        """Return the codec."""
        from shared.codecs.message_pack import MessagePack  # noqa: PLC0415 - loaded by tasks that need it

        return MessagePack()


class AvroFormat(Strict):
    """Avro, `application/avro` as a container, `avro/binary` otherwise."""

    format: Literal["avro"]
    avro_schema: AvroFile | None = Field(None, alias="schema")
    """File with the schema, its path in the configuration folder; optional for reading containers."""
    form: AvroForm = Field("container", alias="as")
    """`container` includes the schema, `single_object` its fingerprint, `raw` neither."""
    schema_id: SchemaId | None = None
    """For `raw`: the id of the schema in a registry, for bodies of the content type `avro/binary+ID`."""

    @field_validator("form")
    @classmethod
    def _can_be_read(cls, form: AvroForm, info: ValidationInfo) -> AvroForm:
        if form != "container" and info.data.get("avro_schema", "") is None:
            raise ValueError(f"{form} needs a schema, expected `schema`, or `as: container`")
        return form

    @field_validator("schema_id")
    @classmethod
    def _is_needed(cls, schema_id: str | None, info: ValidationInfo) -> str | None:
        if schema_id is not None and info.data.get("form") != "raw":
            raise ValueError("is only for `as: raw`: other forms name their schema themselves")
        return schema_id

    def codec(self, _: str) -> Codec:
        """Return the codec."""
        return avro_codec(self.avro_schema, self.form, self.schema_id)


class ProtobufFormat(Strict):
    """Protocol Buffers, `application/protobuf`."""

    format: Literal["protobuf"]
    descriptors: File
    """File from protoc --descriptor_set_out --include_imports, its path in the configuration folder."""
    message: str
    """Full name of the body's message, such as acme.Order."""
    unknown_fields: Literal["reject", "drop"] = "reject"
    """What happens to fields that are not in the descriptors."""

    @field_validator("message")
    @classmethod
    def _is_described(cls, message: str, info: ValidationInfo) -> str:
        from shared.codecs.protobuf import Protobuf  # noqa: PLC0415 - loaded by tasks that need it

        if "descriptors" in info.data:
            Protobuf(info.data["descriptors"], message)
        return message

    def codec(self, beside: str) -> Codec:
        """Return the codec for use with the other format *beside*."""
        from shared.codecs.protobuf import Protobuf  # noqa: PLC0415 - loaded by tasks that need it

        drops = self.unknown_fields == "drop"
        return Protobuf(self.descriptors, self.message, beside_json=beside == "json", drops_unknown=drops)


class XmlFormat(Strict):
    """XML, `application/xml`; it is only read."""

    format: Literal["xml"]
    lists: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Names of elements that always become a list, also a single one."""

    def codec(self, _: str) -> Codec:
        """Return the codec."""
        from shared.codecs.xml import Xml  # noqa: PLC0415 - loaded by tasks that need it

        return Xml(self.lists)


def avro_codec(
    schema: Any,  # noqa: ANN401 - an AvroSchema, whose library is not loaded here
    form: AvroForm,
    schema_id: str | None = None,
) -> Codec:
    """Return the codec for Avro of *form*; only a container includes its schema."""
    from shared.codecs.avro import RawAvro, SingleObject  # noqa: PLC0415 - loaded by tasks that need it
    from shared.codecs.avro_container import Container  # noqa: PLC0415 - likewise

    match form:
        case "raw":
            return RawAvro(schema, schema_id)
        case "single_object":
            return SingleObject(schema)
    return Container(schema)


def avro_reader(schema: Any, form: AvroForm) -> Callable[[bytes], object]:  # noqa: ANN401 - likewise
    """Return a reader of Avro of *form*, which raises MessageRejected; a container may have any number of values."""
    if form != "container":
        return avro_codec(schema, form).read
    from shared.codecs.avro_container import read_container  # noqa: PLC0415 - loaded by tasks that need it

    return lambda content: read_container(content, schema)


def _known(name: str) -> str:
    charset(name)
    return name


class TextFormat(Strict):
    """Text in a character set."""

    format: Literal["text"]
    charset: Annotated[str, AfterValidator(_known)]
    """Its name, such as windows-1252, iso-8859-15 or utf-8."""

    def codec(self, _: str) -> Codec:
        """Raise ValueError: text has no structure."""
        raise ValueError("text can only be converted to text")


def _written_out(value: object) -> object:
    """Return the mapping that a format's name abbreviates."""
    return {"format": value} if isinstance(value, str) else value


def _format_of(value: object) -> str:
    name = value.get("format") if isinstance(value, dict) else getattr(value, "format", None)
    return f"{name} format"


type _AsWritten = (
    Literal["json", "cbor", "messagepack", "avro", "xml"]
    | JsonFormat
    | CborFormat
    | MessagePackFormat
    | AvroFormat
    | ProtobufFormat
    | XmlFormat
    | TextFormat
)
"""In JSON schemas: the name alone is enough for a format that needs nothing else."""
type Format = Annotated[
    Annotated[JsonFormat, Tag("json format")]
    | Annotated[CborFormat, Tag("cbor format")]
    | Annotated[MessagePackFormat, Tag("messagepack format")]
    | Annotated[AvroFormat, Tag("avro format")]
    | Annotated[ProtobufFormat, Tag("protobuf format")]
    | Annotated[XmlFormat, Tag("xml format")]
    | Annotated[TextFormat, Tag("text format")],
    Discriminator(
        _format_of,
        custom_error_type="format",
        custom_error_message="unknown format, expected json, cbor, messagepack, avro, protobuf, xml or text",
    ),
    BeforeValidator(_written_out, json_schema_input_type=_AsWritten),
]
