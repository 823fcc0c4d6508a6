"""Gzip members of JSON lines, in whatever state the file is."""

import zlib

MOST_MEMBER_BYTES = 1 << 26
"""The text of a member: no task writes as much at once, and a few bytes can become a thousand times as many."""
_PIECE = 1 << 14
_GZIP = 31  # zlib's window bits for a gzip member with its header and checksum


def whole_members(content: bytes) -> tuple[list[bytes], str | None]:
    """Return the lines of the whole gzip members of *content*, and the defect of the rest, None if all are whole."""
    lines: list[bytes] = []
    begins, members = 0, 0
    while begins < len(content):
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
                    return lines, f"unreadable after {members} whole members: {too_large}"
        except zlib.error as error:
            return lines, f"unreadable after {members} whole members ({len(content) - begins} bytes left): {error}"
        if not member.eof:
            left = f"{len(content) - begins} bytes left"
            return lines, f"torn: its last member is cut short after {members} whole members ({left})"
        members += 1
        lines += [line for line in b"".join(parts).split(b"\n") if line]
        begins = min(at, len(content)) - len(member.unused_data)
    return lines, None
