"""Gzip members of JSON lines, in whatever state the file is."""

import zlib

_PIECE = 1 << 14
_GZIP = 31  # zlib's window bits for a gzip member with its header and checksum


def whole_members(content: bytes) -> tuple[list[bytes], str | None]:
    """Return the lines of the whole gzip members of *content*, and the defect of the rest, None if all are whole."""
    lines: list[bytes] = []
    begins, members = 0, 0
    while begins < len(content):
        member = zlib.decompressobj(_GZIP)
        parts, at = [], begins
        try:
            while not member.eof and at < len(content):
                # The rest of a member's last piece is copied, so pieces are small.
                parts.append(member.decompress(content[at : at + _PIECE]))
                at += _PIECE
        except zlib.error as error:
            return lines, f"unreadable after {members} whole members ({len(content) - begins} bytes left): {error}"
        if not member.eof:
            left = f"{len(content) - begins} bytes left"
            return lines, f"torn: its last member is cut short after {members} whole members ({left})"
        members += 1
        lines += [line for line in b"".join(parts).split(b"\n") if line]
        begins = min(at, len(content)) - len(member.unused_data)
    return lines, None
