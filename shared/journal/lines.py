"""
Records as JSON lines, compressed: one gzip member for the records of one flush.

The members of a file follow each other, and every gzip reader reads them as one text. The fields that differ from
line to line come first, so that the rest of a line repeats the one before it and compresses to almost nothing.
"""

import json
import re
from collections.abc import Mapping, Sequence
from json.encoder import encode_basestring_ascii

import msgspec
from isal import isal_zlib

# A window of 4 KB, about eight lines, is enough for lines that repeat each other, and short distances take fewer bits.
# Decision 0007 has the figures and the comparison with other libraries.
_LEVEL = 1
_GZIP_OF_4_KB = 16 + 12

# DEL counts as well: the standard library escapes it, msgspec does not.
_ESCAPED = re.compile(r"[^\x00-\x7e]+")
_ENCODER = msgspec.json.Encoder()


class Line(msgspec.Struct, omit_defaults=True, gc=False):
    """The fields of a record that differ from line to line; one without a value is left out."""


def member(lines: Sequence[Line], constants: Mapping[str, object]) -> bytes:
    """Return a gzip member with a JSON object for each of *lines*, to which *constants* are added."""
    tail = f",{json.dumps(constants, separators=(',', ':'))[1:]}\n".encode()
    # Line feeds within strings are escaped, so this splits at the ends of the lines.
    text = tail.join(_encoded(lines).split(b"}\n"))
    if not text.isascii() or b"\x7f" in text:
        # The files are in ASCII; all non-ASCII characters are within the quotes of a JSON string.
        text = _ESCAPED.sub(lambda found: encode_basestring_ascii(found[0])[1:-1], text.decode()).encode()
    return compressed(text)


def compressed(text: bytes) -> bytes:
    """Return *text* as one gzip member."""
    return isal_zlib.compress(text, _LEVEL, _GZIP_OF_4_KB)


def _encoded(lines: Sequence[Line]) -> bytes:
    try:
        return _ENCODER.encode_lines(lines)
    except (UnicodeEncodeError, OverflowError):  # half a surrogate pair in a reason, or a time beyond 64 bits
        return b"".join([_encoded_by_standard_library(line) for line in lines])


def _encoded_by_standard_library(line: Line) -> bytes:
    fields = {name: value for name, value in msgspec.structs.asdict(line).items() if value is not None}
    return json.dumps(fields, separators=(",", ":")).encode() + b"\n"
