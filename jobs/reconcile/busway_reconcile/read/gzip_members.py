"""Gzip members, in whatever state the file is."""

import zlib
from collections.abc import Iterator

MOST_MEMBER_BYTES = 1 << 26
"""The text of a member: no task writes as much at once, and a few bytes can become a thousand times as many."""
_PIECE = 1 << 14
_GZIP = 31  # zlib's window bits for a gzip member with its header and checksum


class Torn(Exception):
    """The rest of a file is no whole gzip member; the message has what is wrong with it."""


def texts_of(content: bytes) -> Iterator[bytes]:
    """Yield the text of each whole gzip member of *content*; raises Torn at anything else."""
    begins, members = 0, 0
    while begins < len(content) or not members:
        member = zlib.decompressobj(_GZIP)
        parts: list[bytes] = []
        size, at = 0, begins
        try:
            while not member.eof and at < len(content):
                # The rest of a member's last piece is copied, so pieces are small.
                parts.append(member.decompress(content[at : at + _PIECE], MOST_MEMBER_BYTES + 1 - size))
                size += len(parts[-1])
                at += _PIECE
                if size > MOST_MEMBER_BYTES:
                    too_large = f"the next one becomes more than {MOST_MEMBER_BYTES} bytes"
                    raise Torn(f"unreadable after {members} whole members: {too_large}")
        except zlib.error as error:
            left = f"{len(content) - begins} bytes left"
            raise Torn(f"unreadable after {members} whole members ({left}): {error}") from error
        if not member.eof:
            left = f"{len(content) - begins} bytes left"
            raise Torn(f"torn: its last member is cut short after {members} whole members ({left})")
        members += 1
        yield b"".join(parts)
        begins = min(at, len(content)) - len(member.unused_data)
