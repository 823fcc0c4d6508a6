"""The transcode editor: the same content in another format."""

import re
from collections.abc import Sequence
from typing import ClassVar, Self

from pydantic import Field, model_validator

from shared.codecs.plain import Codec
from shared.codecs.text import charset, recoded
from shared.editors.content.body import content_of
from shared.editors.content.formats import Format, TextFormat
from shared.editors.options import MediaType, Step, Strict, TaskFacts
from shared.errors import MessageRejected
from shared.message.message import Message

# It claims nothing.
_UNKNOWN = "application/octet-stream"
_CHARSET = re.compile(r';\s*charset\s*=\s*"?([^\s;"]+)"?', re.IGNORECASE)


class TranscodeOptions(Strict):
    """Formats: json, cbor, messagepack, avro, xml as words, or a mapping with `format` and options of the format."""

    before: Format = Field(alias="from")
    """What bodies are in."""
    after: Format = Field(alias="to")
    """What they are to be in; XML is only read, and text becomes text."""
    content_type: MediaType | None = None
    """Media type of the result, where it is not to be the usual one of the format."""
    ignore_content_type: bool = False
    """`true` takes a body for what `from` says, whatever its content type; otherwise that is rejected."""

    @model_validator(mode="after")
    def _can_be_done(self) -> Self:
        if self.after.format == "xml":
            raise ValueError("writes xml, expected another format: XML is only read")
        if (self.before.format == "text") != (self.after.format == "text"):
            raise ValueError("has text on one side only, expected it on both: text cannot be converted to another format")
        if self.after.format == "avro" and self.after.avro_schema is None:
            raise ValueError("writes avro, expected a mapping with a schema")
        return self


class TranscodeStep(Step):
    """Writes the body in another format, or text in another character set; the content type follows."""

    keeps_properties: ClassVar[bool] = True
    keeps_content_type: ClassVar[bool] = False
    options: TranscodeOptions = Field(alias="transcode")

    def editor(self, _: TaskFacts, /) -> "Transcode | Recode":
        """Return the editor that does what the options say."""
        options = self.options
        before, after = options.before, options.after
        if isinstance(before, TextFormat) and isinstance(after, TextFormat):
            return Recode(before.charset, after.charset, options.content_type, checks=not options.ignore_content_type)
        reader, writer = before.codec(after.format), after.codec(before.format)
        return Transcode(reader, writer, options.content_type, checks=not options.ignore_content_type)


class Transcode:
    """
    Writes the body in another format: data sections (joined), or a value that is a string or a binary.

    It becomes one data section. No value changes on the way: what the other format has no place for is rejected, with
    its place; names are told where a schema has them, others stand as `*`.
    """

    name = "transcode"

    def __init__(self, reader: Codec, writer: Codec, media_type: str | None, *, checks: bool) -> None:
        """Call the result *media_type*, or as its format is usually called."""
        self._reader = reader
        self._write = writer.write
        self._media_type = media_type or writer.media_type
        self._checks = checks

    def edit(self, message: Message) -> Sequence[Message]:
        """Return the message; MessageRejected where its body is not what it claims to be, or cannot be written."""
        seen = message.content_type
        try:
            if self._checks and seen is not None:
                self._check(seen)
            message.body = self._write(self._reader.read(content_of(message)))
        except MessageRejected as error:
            raise MessageRejected(error.reason, f"{self.name}: {error.description}") from error
        if seen != self._media_type:
            message.content_type = self._media_type
        return (message,)

    def _check(self, content_type: str) -> None:
        media_type = content_type.partition(";")[0].strip().lower()
        if media_type != _UNKNOWN and not self._reader.claims(media_type):
            raise MessageRejected("WrongContentType", f"has a content type that is not of the format {self._reader.name}")


class Recode:
    """Writes text in another character set; the content type names it."""

    name = "transcode"

    def __init__(self, before: str, after: str, media_type: str | None, *, checks: bool) -> None:
        """Call the result *media_type*, or as the text was called before."""
        self._before = before
        self._canonical = charset(before)
        self._after = after
        self._media_type = media_type
        self._checks = checks

    def edit(self, message: Message) -> Sequence[Message]:
        """Return the message; MessageRejected where its body is not in the one set, or has no place in the other."""
        seen = message.content_type or "text/plain"
        try:
            if self._checks:
                self._check(message, seen)
            message.body = recoded(content_of(message), self._before, self._after)
        except MessageRejected as error:
            raise MessageRejected(error.reason, f"{self.name}: {error.description}") from error
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
