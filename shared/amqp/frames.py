"""
Protocol headers and frames: reading from a stream of bytes, and encoding.

Source: OASIS AMQP 1.0, part 2, sections 2.2 and 2.3.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from shared.amqp.errors import FRAMING_ERROR, ConnectionViolation

AMQP = 0
SASL = 1
MIN_MAX_FRAME_SIZE = 512

HEADER = struct.Struct(">IBBH")
_HEADER_SIZE = HEADER.size
_USUAL_OFFSET = 2
_unpack_header = HEADER.unpack_from
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
        self.unread = b""
        """The bytes of an incomplete frame or header."""

    def feed(self, data: bytes) -> None:
        """Add bytes that have arrived."""
        self.unread = self.unread + data if self.unread else data

    def clear(self) -> None:
        """Forget what has arrived."""
        self.unread = b""

    def next_header(self) -> ProtocolHeader | None:
        """Return the next protocol header, None if it has not arrived yet; anything else is a violation."""
        arrived = self.unread[:4]
        if arrived != b"AMQP"[: len(arrived)]:
            raise ConnectionViolation(FRAMING_ERROR, "the stream does not start with a protocol header")
        if len(self.unread) < PROTOCOL_HEADER_SIZE:
            return None
        header, self.unread = self.unread[:PROTOCOL_HEADER_SIZE], self.unread[PROTOCOL_HEADER_SIZE:]
        return ProtocolHeader(header[4], header[5:])

    def frames(self) -> Iterator[Frame]:
        """Yield the frames that have arrived completely, and keep what follows the last one that is taken."""
        # In one loop: calls for each frame would cost a tenth of the time of a settlement.
        buffer, start = self.unread, 0
        end = len(buffer)
        try:
            while end - start >= _HEADER_SIZE:
                size, offset, kind, channel = _unpack_header(buffer, start)
                if size > self.max_frame_size or offset != _USUAL_OFFSET or size < _HEADER_SIZE or kind > SASL:
                    self._check(size, offset, kind)
                if size > end - start:
                    break
                body = buffer[start + 4 * offset : start + size]
                start += size
                yield kind, channel, body
        finally:
            self.unread = buffer[start:]

    def _check(self, size: int, offset: int, kind: int) -> None:
        if size < HEADER.size or not 2 <= offset <= size // 4 or kind > SASL:
            raise ConnectionViolation(
                FRAMING_ERROR, f"frame of {size} bytes, data offset {offset}, type {kind}: invalid frame header"
            )
        if size > self.max_frame_size:
            raise ConnectionViolation(FRAMING_ERROR, f"frame of {size} bytes, expected at most {self.max_frame_size}")


def compose(channel: int, performative: bytes, payload: bytes = b"", kind: int = AMQP) -> bytes:
    """Return the bytes of a frame."""
    header = HEADER.pack(HEADER.size + len(performative) + len(payload), 2, kind, channel)
    return b"".join((header, performative, payload)) if payload else header + performative
