"""The positions of members and items in a JSON text, for editors that change some and keep every other byte."""

import json
import re
from collections.abc import Iterable, Iterator

type Key = str | int
"""The name of a member, or the index of an item."""
type Entry = tuple[Key, int, int]
"""A key, where the text of its value begins, and where that ends."""
type Edit = tuple[int, int, str]
"""Where a part of a text begins and ends, and the text that replaces it."""

_BLANK = " \t\n\r"
_BLANKS = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def first_value(text: str) -> int:
    """Return where the value of a JSON text begins."""
    return _skip_blanks(text, 0)


def entries(text: str, start: int) -> Iterator[Entry]:
    """
    Yield the members of the object, or the items of the array, that begins at *start*.

    The text must be known to be JSON. Raises RecursionError where a value is nested too deeply.
    """
    is_object = text[start] == "{"
    closing = "}" if is_object else "]"
    position = _skip_blanks(text, start + 1)
    number = 0
    while text[position] != closing:
        if text[position] == ",":
            position = _skip_blanks(text, position + 1)
        key: Key = number
        if is_object:
            key, position = _DECODER.raw_decode(text, position)
            # The colon is between two runs of blanks.
            position = _skip_blanks(text, _skip_blanks(text, position) + 1)
        _, stop = _DECODER.raw_decode(text, position)
        yield key, position, stop
        position = _skip_blanks(text, stop)
        number += 1


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Return *text* with *edits*, of which no two overlap."""
    parts = []
    position = 0
    for start, stop, replacement in sorted(edits):
        parts += [text[position:start], replacement]
        position = stop
    return "".join([*parts, text[position:]])


def _skip_blanks(text: str, position: int) -> int:
    # Much JSON has few blanks, and this check is cheaper than a match.
    if text[position] not in _BLANK:
        return position
    found = _BLANKS.match(text, position)
    return position if found is None else found.end()
