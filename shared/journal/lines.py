"""
Records as JSON lines, compressed: one gzip member for the records of one flush.

The members of a file follow each other, which every reader of gzip reads as one text. What differs from line to line
stands first, so that the rest repeats the line before it and costs next to nothing. Lines are put together as text:
docs/decisions/0007 has what that saves.
"""

import json
from collections.abc import Iterable, Mapping
from json.encoder import encode_basestring_ascii

from zlib_ng import zlib_ng

# A window of 8 KB, some twenty lines, is all that lines which repeat each other need; the rest of what makes it cheap,
# and how it compares with the standard library's, docs/decisions/0007 has.
_LEVEL = 3
_GZIP_OF_8_KB = 16 + 13

# Text in quotes, with what JSON wants escaped.
quoted = encode_basestring_ascii


def member(lines: Iterable[str], constants: Mapping[str, object]) -> bytes:
    """Return a gzip member of *lines*, which are JSON objects without their last brace, each with *constants* added."""
    tail = f",{json.dumps(constants, separators=(',', ':'))[1:]}\n"
    return compressed((tail.join(lines) + tail).encode())


def compressed(text: bytes) -> bytes:
    """Return *text* as one gzip member."""
    compressor = zlib_ng.compressobj(_LEVEL, zlib_ng.DEFLATED, _GZIP_OF_8_KB)
    return bytes(compressor.compress(text) + compressor.flush())
