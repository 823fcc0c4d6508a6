"""The transcode editor: converts bodies to another format."""

import re
from collections.abc import Callable, Sequence
from typing import ClassVar, Self

from pydantic import Field, model_validator

from shared.codecs.json import form_of
from shared.codecs.plain import Codec, Plain, TextCodec
from shared.codecs.text import charset, charset_in, recode
from shared.editors.content.body import content_of, is_string
from shared.editors.content.formats import AvroFormat, Format, TextFormat
from shared.editors.options import MediaType, Step, Strict, TaskFacts
from shared.errors import MessageRejected
from shared.message.message import Message

# This content type says nothing about the format.
_UNKNOWN = "application/octet-stream"
_CHARSET = re.compile(r';\s*charset\s*=\s*"?([^\s;"]+)"?', re.IGNORECASE)


class TranscodeOptions(Strict):
    """Formats: json, cbor, messagepack, avro, xml as words, or a mapping with `format` and options of the format."""

    before: Format = Field(alias="from")
    """Format of the bodies."""
    after: Format = Field(alias="to")
    """Format of the result; XML can only be read, and text can only become text."""
    content_type: MediaType | None = None
    """Media type of the result; by default the usual one of the format."""
    ignore_content_type: bool = False
    """Whether to accept bodies with another content type than that of `from`; by default they are rejected."""

    @model_validator(mode="after")
    def _can_be_done(self) -> Self:
        if self.after.format == "xml":
            raise ValueError("writes xml, expected another format: XML can only be read")
        if (self.before.format == "text") != (self.after.format == "text"):
            raise ValueError(
                "has text on one side only, expected it on both: text cannot be converted to another format"
            )
        if self.after.format == "avro" and self.after.avro_schema is None:
            raise ValueError("writes avro, expected a mapping with a schema")
        return self


class TranscodeStep(Step):
    """Converts the body to another format, or text to another character set, and sets the content type."""

    keeps_properties: ClassVar[bool] = True
    keeps_content_type: ClassVar[bool] = False
    options: TranscodeOptions = Field(alias="transcode")

    def editor(self, _: TaskFacts, /) -> "Transcode | Recode":
        """Return the editor with these options."""
        options = self.options
        before, after = options.before, options.after
        if isinstance(before, TextFormat) and isinstance(after, TextFormat):
            return Recode(before.charset, after.charset, options.content_type, checks=not options.ignore_content_type)
        reader, writer = before.codec(after.format), after.codec(before.format)
        made = Transcode(reader, writer, options.content_type, checks=not options.ignore_content_type)
        if isinstance(before, AvroFormat) and before.form == "raw":
            made.expect_schema(before.schema_id)
        return made


class Transcode:
    """
    Converts a body of data sections (joined), or of a value that is a string or binary, to one data section.

    No value changes: a body with a value that the other format cannot represent is rejected with its path, in which
    names that are not in a schema are `*`.
    """

    name = "transcode"

    def __init__(self, reader: Codec, writer: Codec, media_type: str | None, *, checks: bool) -> None:
        """Use *media_type* for the result, by default that of its format."""
        self._reader = reader
        self._write = writer.write
        self._media_type = media_type or writer.media_type
        self._checks = checks
        self._check_schema: Callable[[str], None] | None = None
        self._read_text = reader.read_text if isinstance(reader, TextCodec) else None

    def expect_schema(self, schema_id: str | None) -> None:
        """Reject bodies whose content type names another schema of a registry."""
        from shared.codecs.avro import check_schema_id  # noqa: PLC0415 - loaded by tasks that need it

        self._check_schema = lambda content_type: check_schema_id(content_type, schema_id)

    def edit(self, message: Message) -> Sequence[Message]:
        """Return the message; raises MessageRejected if its body cannot be read, or not be written."""
        seen = message.content_type
        if self._checks and seen is not None:
            self._check(seen)
        message.body = self._write(self._read(message))
        if seen != self._media_type:
            message.content_type = self._media_type
        return (message,)

    def _read(self, message: Message) -> Plain:
        content = content_of(message)
        if self._read_text is not None:
            # A string has no encoding any more, whatever the content type or a declaration in it says.
            named = "utf-8" if is_string(message) else charset_in(message.content_type)
            if named is not None:
                return self._read_text(content, named)
        try:
            return self._reader.read(content)
        except MessageRejected as error:
            if not (form := form_of(content)) or error.description.endswith(form):
                raise
            raise MessageRejected(error.reason, error.description + form) from error

    def _check(self, content_type: str) -> None:
        if self._check_schema is not None:
            self._check_schema(content_type)
        media_type = content_type.partition(";")[0].strip().lower()
        if media_type != _UNKNOWN and not self._reader.claims(media_type):
            raise MessageRejected(
                "WrongContentType", f"has a content type that is not of the format {self._reader.name}"
            )


class Recode:
    """Converts text to another character set, which the content type then names."""

    name = "transcode"

    def __init__(self, before: str, after: str, media_type: str | None, *, checks: bool) -> None:
        """Use *media_type* for the result, by default that of the message."""
        self._before = before
        self._canonical = charset(before)
        self._after = after
        self._media_type = media_type
        self._checks = checks

    def edit(self, message: Message) -> Sequence[Message]:
        """Return the message; raises MessageRejected if one of the character sets lacks a character."""
        seen = message.content_type or "text/plain"
        if self._checks:
            self._check(message, seen)
        message.body = recode(content_of(message), self._before, self._after)
        message.content_type = f"{self._media_type or _CHARSET.sub('', seen)}; charset={self._after}"
        return (message,)

    def _check(self, message: Message, content_type: str) -> None:
        named = _CHARSET.search(content_type)
        if named is not None and _canonical(named[1]) != self._canonical:
            raise MessageRejected("WrongContentType", f"names a character set other than {self._before}")
        if message.body is None and self._canonical != "utf-8":
            raise MessageRejected("UnreadableBody", f"the body is not data, expected data in {self._before}")


def _canonical(name: str) -> str | None:
    try:
        return charset(name)
    except ValueError:
        return None
