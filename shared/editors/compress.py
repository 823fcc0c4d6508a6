"""The compress editor: smaller bodies."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from shared.codecs.compression import Encoding, compressor
from shared.editors.content.body import content_of
from shared.editors.options import Step, Strict, TaskFacts
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


class CompressStep(Step):
    """Compresses the body, and appends the encoding to the property content-encoding."""

    keeps_properties: ClassVar[bool] = True
    options: CompressOptions = Field(alias="compress")

    def editor(self, _: TaskFacts, /) -> "Compress":
        """Return the editor with these options."""
        options = self.options
        level = _LEVELS[options.encoding][2] if options.level is None else options.level
        return Compress(compressor(options.encoding, level), CODINGS[options.encoding], options.min_size)


class Compress:
    """
    Compresses a body of data sections (joined), or of a value that is a string or binary, to one data section.

    The content type stays. An existing content encoding stays as the first of two, as in HTTP (RFC 9110, section 8.4).
    """

    name = "compress"

    def __init__(self, compress: Callable[[bytes], bytes], coding: str, min_size: int) -> None:
        """Compress bodies of *min_size* bytes and more."""
        self._compress = compress
        self._coding = coding
        self._min_size = min_size

    def edit(self, message: Message) -> Sequence[Message]:
        """Return the message; raises MessageRejected if its body cannot be compressed."""
        content = content_of(message)
        if len(content) >= self._min_size:
            message.body = self._compress(content)
            before = message.content_encoding
            message.content_encoding = f"{before}, {self._coding}" if before else self._coding
        return (message,)
