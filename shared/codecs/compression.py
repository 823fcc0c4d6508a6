"""
Gzip, zstd and brotli: bodies compressed as a whole, and decompressed up to a limit.

Senders are not trusted: a body may be cut off, followed by other bytes, or a bomb, a few bytes that become many. Output
is produced piece by piece, so that a bomb is stopped at the limit and not after it.

Source: RFC 1952 (gzip), RFC 8878 (zstd), RFC 7932 (brotli).
"""

import zlib
from collections.abc import Callable
from typing import Literal, NamedTuple

from shared.errors import MessageRejected

type Encoding = Literal["gzip", "zstd", "brotli"]

_GZIP = zlib.MAX_WBITS | 16
_PIECE = 2**16
_SLICE = 2**14
# zlib copies the rest of a slice after each member, which is slow for many small members.
_MOST_MEMBERS = 1000
# A zstd block takes at least 4 bytes and becomes 128 KiB at most; a piece of this size never becomes too large.
_BLOCK, _LEAST_BLOCK, _LEAST_PIECE = 2**17, 4, 64
# RFC 8878, 3.1.1.1.2 recommends that every decoder supports it.
_WINDOW = 2**23


class Limits(NamedTuple):
    """The largest decompressed size: in bytes, and as a multiple of the compressed size (None for any)."""

    size: int
    ratio: int | None = None

    def most(self, content: bytes) -> int:
        """Return the largest decompressed size of *content* in bytes."""
        return self.size if self.ratio is None else min(self.size, self.ratio * len(content))

    def check(self, size: int, content: bytes) -> None:
        """Raise MessageRejected if *size* is too large for *content*."""
        if size > self.size:
            raise MessageRejected("BodyTooLarge", f"body becomes more than {self.size} bytes when decompressed")
        if self.ratio is not None and size > self.ratio * len(content):
            raise MessageRejected("BodyTooLarge", f"body becomes more than {self.ratio} times its compressed size")


def compressor(encoding: Encoding, level: int) -> Callable[[bytes], bytes]:
    """Return a function that compresses; *level* must be one of the encoding's."""
    match encoding:
        case "gzip":
            return lambda content: zlib.compress(content, level, _GZIP)
        case "zstd":
            import zstandard  # noqa: PLC0415 - loaded by tasks that need it

            # This call writes the size into the frame, so that decoders know it in advance.
            return zstandard.ZstdCompressor(level=level).compress
        case "brotli":
            import brotli  # noqa: PLC0415 - likewise

            return lambda content: bytes(brotli.compress(content, quality=level))


def decompressor(encoding: Encoding, limits: Limits) -> Callable[[bytes], bytes]:
    """Return a function that decompresses; it raises MessageRejected for other content, and beyond *limits*."""
    match encoding:
        case "gzip":
            return lambda content: _gunzip(content, limits)
        case "zstd":
            return _unzstd_within(limits)
        case "brotli":
            return _unbrotli_within(limits)


def inflate(content: bytes, limits: Limits) -> bytes:
    """Return a decompressed raw deflate stream; writers of Avro leave part of a checksum after it."""
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        found = stream.decompress(content, limits.most(content) + 1)
    except zlib.error as error:
        raise _not("deflate") from error
    limits.check(len(found), content)
    if not stream.eof:
        raise _cut_off("deflate")
    return found


def gzip_member(content: bytes, start: int, most: int) -> tuple[bytes, int]:
    """
    Return the decompressed gzip member at *start*, and where it ends; of a larger one the first *most* + 1 bytes.

    Raises: zlib.error, and EOFError if *content* ends within the member.
    """
    member, view = zlib.decompressobj(_GZIP), memoryview(content)
    pieces: list[bytes] = []
    size, at = 0, start
    while not member.eof and size <= most:
        if at >= len(content):
            raise EOFError
        # In slices: what follows a member is copied.
        taken = view[at : at + _SLICE]
        at += len(taken)
        pieces.append(member.decompress(taken, most + 1 - size))
        size += len(pieces[-1])
    return b"".join(pieces), at - len(member.unused_data)


def _gunzip(content: bytes, limits: Limits) -> bytes:
    """Return the decompressed members in their order (RFC 1952, 2.2)."""
    pieces: list[bytes] = []
    size = at = 0
    for _ in range(_MOST_MEMBERS):
        start = at
        try:
            # Joined at the end: a few long members before many empty ones would be copied for each of them.
            piece, at = gzip_member(content, start, limits.most(content) - size)
        except zlib.error as error:
            raise (_trailing("gzip") if start else _not("gzip")) from error
        except EOFError as error:
            raise _cut_off("gzip") from error
        pieces.append(piece)
        size += len(piece)
        limits.check(size, content)
        if at >= len(content):
            return b"".join(pieces)
    raise MessageRejected("NotCompressed", f"body is gzip of more than {_MOST_MEMBERS} members")


def _unzstd_within(limits: Limits) -> Callable[[bytes], bytes]:
    import zstandard  # noqa: PLC0415 - loaded by tasks that need it

    decoder = zstandard.ZstdDecompressor(max_window_size=max(_WINDOW, limits.size))

    def unzstd(content: bytes) -> bytes:
        """Return the decompressed frames in their order (RFC 8878, 3)."""
        most = limits.most(content)
        pieces: list[bytes] = []
        size = position = 0
        while True:
            frame = decoder.decompressobj()
            try:
                while position < len(content) and not frame.eof:
                    taken = max(_LEAST_PIECE, (most - size) // _BLOCK * _LEAST_BLOCK)
                    piece = frame.decompress(content[position : position + taken])
                    position = min(position + taken, len(content)) - len(frame.unused_data)
                    size += len(piece)
                    pieces.append(piece)
                    limits.check(size, content)
            except zstandard.ZstdError as error:
                raise (_trailing("zstd") if pieces else _not("zstd")) from error
            if not frame.eof:
                raise _cut_off("zstd")
            if position == len(content):
                return b"".join(pieces)

    return unzstd


def _unbrotli_within(limits: Limits) -> Callable[[bytes], bytes]:
    import brotli  # noqa: PLC0415 - loaded by tasks that need it

    def unbrotli(content: bytes) -> bytes:
        stream = brotli.Decompressor()
        pieces: list[bytes] = []
        size = 0
        given = content
        try:
            while not stream.is_finished():
                piece = stream.process(given, output_buffer_limit=_PIECE)
                given = b""
                size += len(piece)
                pieces.append(piece)
                limits.check(size, content)
                if not piece and stream.can_accept_more_data() and not stream.is_finished():
                    raise _cut_off("brotli")
        except brotli.error as error:
            # It only reports that it failed, also for other bytes after the end.
            raise _not("brotli") from error
        return b"".join(pieces)

    return unbrotli


def _not(encoding: str) -> MessageRejected:
    return MessageRejected("NotCompressed", f"body is not {encoding}, or is damaged")


def _cut_off(encoding: str) -> MessageRejected:
    return MessageRejected("NotCompressed", f"body is {encoding} that is cut off")


def _trailing(encoding: str) -> MessageRejected:
    return MessageRejected("TrailingBytes", f"body has bytes after the end of its {encoding}")
