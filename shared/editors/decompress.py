"""The decompress editor: restores compressed bodies."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from shared.codecs.compression import Encoding, Limits, decompressor
from shared.editors.compress import CODINGS
from shared.editors.content.body import content_of
from shared.editors.options import MessageStep, Strict
from shared.errors import MessageRejected
from shared.message.message import Message

# x-gzip is gzip (RFC 9110, section 8.4.1.3).
_ENCODINGS: Mapping[str, Encoding] = {coding: encoding for encoding, coding in CODINGS.items()} | {"x-gzip": "gzip"}
# First bytes of every body of an encoding; brotli has none.
_BEGINNINGS: Mapping[Encoding, bytes] = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}


class DecompressOptions(Strict):
    """Which bodies are decompressed, and the limits."""

    encoding: Encoding | None = None
    """Encoding of messages without the property content-encoding; messages with another encoding are rejected."""
    max_size: Annotated[int, Field(ge=1)] = 16 * 2**20
    """Largest decompressed body in bytes; by default 16 MiB."""
    max_ratio: Annotated[int, Field(ge=1)] | None = None
    """Largest decompressed size, as a multiple of the compressed size; by default unlimited."""
    uncompressed: Literal["reject", "pass"] = "reject"
    """What happens to a body that is not compressed: `pass` leaves it as it is."""

    @model_validator(mode="after")
    def _can_tell_what_is_compressed(self) -> Self:
        if self.encoding == "brotli" and self.uncompressed == "pass":
            msg = "has `uncompressed: pass` with `encoding: brotli`, which cannot be distinguished from other bytes"
            raise ValueError(msg)
        return self


class DecompressStep(MessageStep):
    """Decompresses the body by its last content encoding, and removes that from the property content-encoding."""

    keeps_properties: ClassVar[bool] = True
    options: DecompressOptions = Field(alias="decompress")

    @cached_property
    def _decompressors(self) -> Mapping[Encoding, Callable[[bytes], bytes]]:
        limits = Limits(self.options.max_size, self.options.max_ratio)
        return {encoding: decompressor(encoding, limits) for encoding in CODINGS}

    def edit(self, message: Message) -> Sequence[Message]:
        """
        Return the message with one data section; raises MessageRejected if its body is not compressed as declared.

        A body is rejected if it is not of this encoding, is cut off, has other bytes after its end, or becomes too
        large. Consecutive members of gzip, and frames of zstd, are one body, as their specifications say.
        """
        before, _, last = (message.content_encoding or "").rpartition(",")
        said = _ENCODINGS.get(last.strip().lower())
        content = self._content(message, said)
        if content is not None:
            message.body = content
            if said is not None:
                message.content_encoding = before.strip() or None
        return (message,)

    def _content(self, message: Message, said: Encoding | None) -> bytes | None:
        """Return the decompressed body, None if it stays as it is."""
        expected, passes_others = self.options.encoding, self.options.uncompressed == "pass"
        if said is not None and expected is not None and said != expected:
            problem = f"the content encoding is {CODINGS[said]}, expected {CODINGS[expected]}"
            raise MessageRejected("WrongEncoding", problem)
        encoding = said or expected
        if encoding is None:
            if passes_others:
                return None
            known = ", ".join(CODINGS.values())
            raise MessageRejected("NotCompressed", f"the content encoding names no compression, expected {known}")
        content = content_of(message)
        if said is None and passes_others and not content.startswith(_BEGINNINGS[encoding]):
            return None
        return self._decompressors[encoding](content)
