"""
A file of frames that is only ever added to.

Shape:  a line that names format and version; then frames: 4 bytes of a mark, the length of the payload and the CRC-32
        of length and payload as unsigned 32-bit numbers, the payload.
1. A frame is written when all before it are on disk: a broken frame with nothing valid behind it was never answered for
   and is cut off; one with a valid frame behind it is damage, and the file is not used.
"""

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final

from shared.errors import BuswayError

VERSION: Final = 1

_HEADER = f"busway broker data {VERSION}\n".encode()
_MARK = b"\xb5BWF"
_FRAME = Struct(">4sII")


class StorageError(BuswayError):
    """The folder with the broker's state cannot be used; the text says which file, and why."""


class Log:
    """A log that is open for writing; with `is_synced` what is written is on the disk, not just with the system."""

    def __init__(self, path: Path, *, is_synced: bool) -> None:
        """Start a new file."""
        self.path = path
        self.size = 0
        self.is_synced = is_synced
        # What is in it may be secret: the messages, and the keys of entities.
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        self._write(_HEADER)

    def append(self, payload: bytes) -> None:
        """Write a frame; StorageError if that is not possible, after which the log is of no more use."""
        length = len(payload).to_bytes(4)
        self._write(_FRAME.pack(_MARK, len(payload), zlib.crc32(payload, zlib.crc32(length))) + payload)
        if self.is_synced:
            self.sync()

    def sync(self) -> None:
        """Return when everything written is on the disk."""
        try:
            os.fdatasync(self._file)
        except OSError as error:
            raise StorageError(f"{self.path}: cannot be written: {error.strerror}") from error

    def rename(self, path: Path) -> None:
        """Give the file, with all that is in it, the name *path*."""
        self.sync()
        self.path.rename(path)
        self.path = path
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file, view) :]
        except OSError as error:
            raise StorageError(f"{self.path}: cannot be written: {error.strerror}") from error
        self.size += len(data)


class LogReader:
    """The frames of a log; once they have been read, `torn` says how many bytes of a broken frame end it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.torn = 0

    def frames(self) -> Iterator[bytes]:
        """Return the payloads; StorageError for damage, or for a file of another format or version."""
        data = self._path.read_bytes()
        if not data.startswith(_HEADER):
            found = data.partition(b"\n")[0][:40].decode(errors="replace")
            raise StorageError(f"{self._path}: starts with {found!r}, expected {_HEADER.decode().strip()!r}")
        position = len(_HEADER)
        while position < len(data):
            payload = _payload(data, position)
            if payload is None:
                self._check_tail(data, position)
                self.torn = len(data) - position
                return
            yield payload
            position += _FRAME.size + len(payload)

    def _check_tail(self, data: bytes, broken: int) -> None:
        position = broken
        while (position := data.find(_MARK, position + 1)) >= 0:
            if _payload(data, position) is not None:
                raise StorageError(
                    f"{self._path}: damaged between bytes {broken} and {position}, with intact frames behind them"
                )


def _payload(data: bytes, position: int) -> bytes | None:
    """Return the payload of the frame at a position, None if it is not whole."""
    start = position + _FRAME.size
    if start > len(data):
        return None
    mark, length, checksum = _FRAME.unpack_from(data, position)
    payload = data[start : start + length]
    if (
        mark != _MARK
        or len(payload) != length
        or zlib.crc32(payload, zlib.crc32(data[position + 4 : position + 8])) != checksum
    ):
        return None
    return payload
