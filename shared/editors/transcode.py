"""The transcode editor: converts bodies to another format."""

import re
from collections.abc import Sequence
from functools import cached_property
from typing import ClassVar, Self, cast

from pydantic import Field, model_validator

from shared.codecs.json import form_of
from shared.codecs.plain import Codec, Plain, TextCodec
from shared.codecs.text import charset, charset_in, recode
from shared.editors.content.body import content_of, is_string
from shared.editors.content.formats import Format, TextFormat
from shared.editors.options import MediaType, MessageStep, Strict
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
            problem = "has text on one side only, expected it on both: text cannot be converted to another format"
            raise ValueError(problem)
        if self.after.format == "avro" and self.after.avro_schema is None:
            raise ValueError("writes avro, expected a mapping with a schema")
        return self


class TranscodeStep(MessageStep):
    """Converts the body to another format, or text to another character set, and sets the content type."""

    keeps_properties: ClassVar[bool] = True
    keeps_content_type: ClassVar[bool] = False
    options: TranscodeOptions = Field(alias="transcode")

    @cached_property
    def _codecs(self) -> tuple[Codec, Codec] | None:
        """What reads bodies, and what writes them; None for text, which has no structure."""
        before, after = self.options.before, self.options.after
        if isinstance(before, TextFormat):
            return None
        return before.codec(after.format), after.codec(before.format)

    def edit(self, message: Message) -> Sequence[Message]:
        """
        Return the message; raises MessageRejected if its body cannot be read, or not be written.

        A body of data sections (joined), or of a value that is a string or binary, becomes one data section. No value
        changes: a body with a value that the other format cannot represent is rejected with its path, in which names
        that are not in a schema are `*`.
        """
        if self._codecs is None:
            self._recode(message)
        else:
            self._transcode(message, *self._codecs)
        return (message,)

    def _transcode(self, message: Message, reader: Codec, writer: Codec) -> None:
        seen, media_type = message.content_type, self.options.content_type or writer.media_type
        if seen is not None and not self.options.ignore_content_type:
            given = seen.partition(";")[0].strip().lower()
            if given != _UNKNOWN and not reader.claims(given):
                raise MessageRejected("WrongContentType", f"has a content type that is not of the format {reader.name}")
        message.body = writer.write(_read(message, reader))
        if seen != media_type:
            message.content_type = media_type

    def _recode(self, message: Message) -> None:
        """Convert text to another character set, which the content type then names."""
        before, after = (cast("TextFormat", each).charset for each in (self.options.before, self.options.after))
        seen = message.content_type or "text/plain"
        if not self.options.ignore_content_type:
            named, canonical = _CHARSET.search(seen), charset(before)
            if named is not None and _canonical(named[1]) != canonical:
                raise MessageRejected("WrongContentType", f"names a character set other than {before}")
            if message.body is None and canonical != "utf-8":
                raise MessageRejected("UnreadableBody", f"the body is not data, expected data in {before}")
        message.body = recode(content_of(message), before, after)
        message.content_type = f"{self.options.content_type or _CHARSET.sub('', seen)}; charset={after}"


def _read(message: Message, reader: Codec) -> Plain:
    content = content_of(message)
    if isinstance(reader, TextCodec):
        # A string has no encoding any more, whatever the content type or a declaration in it says.
        named = "utf-8" if is_string(message) else charset_in(message.content_type)
        if named is not None:
            return reader.read_text(content, named)
    try:
        return reader.read(content)
    except MessageRejected as error:
        if not (form := form_of(content)) or error.description.endswith(form):
            raise
        raise MessageRejected(error.reason, error.description + form) from error


def _canonical(name: str) -> str | None:
    try:
        return charset(name)
    except ValueError:
        return None
