"""
Protocol headers and frames: reading from a stream of bytes, and encoding.

Source: OASIS AMQP 1.0, part 2, sections 2.2 and 2.3.
"""

import struct
from typing import NamedTuple

from local.broker import errors
from local.broker.errors import ConnectionViolation

AMQP = 0
SASL = 1
MIN_MAX_FRAME_SIZE = 512

HEADER = struct.Struct(">IBBH")
EMPTY_FRAME = HEADER.pack(HEADER.size, 2, AMQP, 0)
PROTOCOL_HEADER_SIZE = 8


class ProtocolHeader(NamedTuple):
    """What each side sends before its first frame."""

    protocol_id: int
    version: bytes

    def encode(self) -> bytes:
        """Return the eight bytes."""
        return b"AMQP%c%b" % (self.protocol_id, self.version)


AMQP_HEADER = ProtocolHeader(0, b"\x01\x00\x00")
SASL_HEADER = ProtocolHeader(3, b"\x01\x00\x00")


type Frame = tuple[int, int, bytes]
"""The type and channel of a frame, and its body: the performative and its payload, empty for a heartbeat."""


class FrameReader:
    """Splits a stream of bytes into protocol headers and frames."""

    def __init__(self, max_frame_size: int) -> None:
        """Refuse frames of more than *max_frame_size* bytes."""
        self.max_frame_size = max_frame_size
        self.has_more = False
        self._buffer = b""
        self._position = 0

    def feed(self, data: bytes) -> None:
        """Add bytes that have arrived."""
        self._buffer = self._buffer[self._position :] + data
        self._position = 0
        self.has_more = True

    def trim(self) -> int:
        """Release what has been read; return how many bytes of an incomplete frame remain."""
        if self._position:
            self._buffer = self._buffer[self._position :]
            self._position = 0
        return len(self._buffer)

    def clear(self) -> None:
        """Forget what has arrived."""
        self._buffer, self._position = b"", 0

    def next_header(self) -> ProtocolHeader | None:
        """Return the next protocol header, None if it has not arrived yet; anything else is a violation."""
        start = self._position
        arrived = self._buffer[start : start + 4]
        if arrived != b"AMQP"[: len(arrived)]:
            raise ConnectionViolation(errors.FRAMING_ERROR, "the stream does not start with a protocol header")
        if len(self._buffer) - start < PROTOCOL_HEADER_SIZE:
            return None
        self._position += PROTOCOL_HEADER_SIZE
        return ProtocolHeader(self._buffer[start + 4], self._buffer[start + 5 : start + 8])

    def next_frame(self) -> Frame | None:
        """Return the next frame, None if it has not arrived completely."""
        buffer, start = self._buffer, self._position
        if len(buffer) - start < HEADER.size:
            return None
        size, offset, kind, channel = HEADER.unpack_from(buffer, start)
        if size < HEADER.size or not 2 <= offset <= size // 4 or kind > SASL:
            raise ConnectionViolation(
                errors.FRAMING_ERROR, f"frame of {size} bytes, data offset {offset}, type {kind}: invalid frame header"
            )
        if size > self.max_frame_size:
            raise ConnectionViolation(
                errors.FRAMING_ERROR, f"frame of {size} bytes, expected at most {self.max_frame_size}"
            )
        stop = start + size
        if len(buffer) < stop:
            return None
        self._position = stop
        self.has_more = stop < len(buffer)
        return kind, channel, buffer[start + 4 * offset : stop]


def compose(channel: int, performative: bytes, payload: bytes = b"", kind: int = AMQP) -> bytes:
    """Return the bytes of a frame."""
    header = HEADER.pack(HEADER.size + len(performative) + len(payload), 2, kind, channel)
    return b"".join((header, performative, payload)) if payload else header + performative
