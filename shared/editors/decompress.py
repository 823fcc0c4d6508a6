"""The decompress editor: bodies as they were before they were compressed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from shared.codecs.compression import Encoding, Limits, decompressor
from shared.editors.compress import CODINGS
from shared.editors.content.body import content_of
from shared.editors.options import Step, Strict, TaskFacts
from shared.errors import MessageRejected
from shared.message.message import Message

# x-gzip is gzip (RFC 9110, section 8.4.1.3).
_ENCODINGS: Mapping[str, Encoding] = {coding: encoding for encoding, coding in CODINGS.items()} | {"x-gzip": "gzip"}
# What every body of an encoding begins with; brotli has nothing of the kind.
_BEGINNINGS: Mapping[Encoding, bytes] = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}


class DecompressOptions(Strict):
    """What is decompressed, and how far."""

    encoding: Encoding | None = None
    """For senders that do not say it in the property content-encoding; one that says another is rejected."""
    max_size: Annotated[int, Field(ge=1)] = 16 * 2**20
    """Bytes that a body may become at most; 16 MiB unless given."""
    max_ratio: Annotated[int, Field(ge=1)] | None = None
    """How many times its compressed size a body may become at most; any unless given."""
    uncompressed: Literal["reject", "pass"] = "reject"
    """`pass` lets a body that is not compressed go on as it is."""

    @model_validator(mode="after")
    def _can_tell_what_is_compressed(self) -> Self:
        if self.encoding == "brotli" and self.uncompressed == "pass":
            msg = "passes what is not compressed, expected no `encoding: brotli`, which cannot be told from other bytes"
            raise ValueError(msg)
        return self


class DecompressStep(Step):
    """Undoes what compress has done last, and takes its name out of the property content-encoding."""

    keeps_properties: ClassVar[bool] = True
    options: DecompressOptions = Field(alias="decompress")

    def editor(self, _: TaskFacts, /) -> "Decompress":
        """Return the editor that does what the options say."""
        options = self.options
        limits = Limits(options.max_size, options.max_ratio)
        decompressors = {encoding: decompressor(encoding, limits) for encoding in CODINGS}
        return Decompress(decompressors, options.encoding, passes_others=options.uncompressed == "pass")


class Decompress:
    """
    Undoes the last encoding that the property content-encoding names; the body becomes one data section.

    Rejected: what is no such encoding, ends before its end, has other bytes behind it, or becomes too large. Members of
    gzip and frames of zstd that follow one another are one body, as their specifications say.
    """

    name = "decompress"

    def __init__(
        self,
        decompressors: Mapping[Encoding, Callable[[bytes], bytes]],
        expected: Encoding | None,
        *,
        passes_others: bool,
    ) -> None:
        """Take a body of which the message says nothing for *expected*."""
        self._decompressors = decompressors
        self._expected = expected
        self._passes_others = passes_others

    def edit(self, message: Message) -> Sequence[Message]:
        """Return the message; MessageRejected where its body is not what it claims to be."""
        before, _, last = (message.content_encoding or "").rpartition(",")
        said = _ENCODINGS.get(last.strip().lower())
        try:
            content = self._content(message, said)
        except MessageRejected as error:
            raise MessageRejected(error.reason, f"{self.name}: {error.description}") from error
        if content is not None:
            message.body = content
            if said is not None:
                message.content_encoding = before.strip() or None
        return (message,)

    def _content(self, message: Message, said: Encoding | None) -> bytes | None:
        """Return the body decompressed, None where it is to go on as it is."""
        expected = self._expected
        if said is not None and expected is not None and said != expected:
            raise MessageRejected(
                "WrongEncoding", f"the content encoding is {CODINGS[said]}, expected {CODINGS[expected]}"
            )
        encoding = said or expected
        if encoding is None:
            if self._passes_others:
                return None
            known = ", ".join(CODINGS.values())
            raise MessageRejected("NotCompressed", f"the content encoding names no compression, expected {known}")
        content = content_of(message)
        if said is None and self._passes_others and not content.startswith(_BEGINNINGS[encoding]):
            return None
        return self._decompressors[encoding](content)
