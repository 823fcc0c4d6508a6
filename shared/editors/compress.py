"""The compress editor: smaller bodies."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from shared.codecs.compression import Encoding, compressor
from shared.editors.content.body import content_of
from shared.editors.options import MessageStep, Strict
from shared.message.message import Message

# Lowest, highest and default level. At its default, each takes about as long as gzip.
_LEVELS: Mapping[Encoding, tuple[int, int, int]] = {"gzip": (0, 9, 6), "zstd": (1, 22, 3), "brotli": (0, 11, 4)}

CODINGS: Mapping[Encoding, str] = {"gzip": "gzip", "zstd": "zstd", "brotli": "br"}
"""Names in the property content-encoding; source: IANA, HTTP Content Coding Registry."""


class CompressOptions(Strict):
    """How bodies are compressed."""

    encoding: Encoding
    """`gzip` is supported everywhere, `zstd` is fast and small, `brotli` is best for text."""
    level: int | None = None
    """Compression level: gzip 0 to 9 (default 6), zstd 1 to 22 (3), brotli 0 to 11 (4)."""
    min_size: Annotated[int, Field(ge=0)] = 0
    """Smallest body in bytes that is compressed; smaller bodies stay as they are."""

    @model_validator(mode="after")
    def _has_the_level(self) -> Self:
        least, most, _ = _LEVELS[self.encoding]
        if self.level is not None and not least <= self.level <= most:
            raise ValueError(f"has the level {self.level}, expected {least} to {most} for {self.encoding}")
        return self


class CompressStep(MessageStep):
    """Compresses the body, and appends the encoding to the property content-encoding."""

    keeps_properties: ClassVar[bool] = True
    options: CompressOptions = Field(alias="compress")

    @cached_property
    def _compress(self) -> Callable[[bytes], bytes]:
        options = self.options
        return compressor(options.encoding, _LEVELS[options.encoding][2] if options.level is None else options.level)

    def edit(self, message: Message) -> Sequence[Message]:
        """
        Return the message with one data section; raises MessageRejected if its body cannot be compressed.

        The content type stays. An existing content encoding stays as the first of two, as in HTTP (RFC 9110, section
        8.4).
        """
        content = content_of(message)
        if len(content) >= self.options.min_size:
            message.body = self._compress(content)
            before, coding = message.content_encoding, CODINGS[self.options.encoding]
            message.content_encoding = f"{before}, {coding}" if before else coding
        return (message,)
