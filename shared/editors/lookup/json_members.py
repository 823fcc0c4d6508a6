"""Members put into an object of a JSON text, all the rest of which keeps every byte."""

import json
import re
from collections.abc import Sequence

from shared.errors import MessageRejected

type Members = Sequence[tuple[str, str]]
"""Names, and values as JSON texts."""

_BLANKS = " \t\n\r"
_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def with_members(text: str, path: Sequence[str], members: Members) -> str:
    """
    Return a JSON text with *members* in the object that *path* leads to, in the place of those of the same names.

    The object itself is made where it is the only step that is missing. The text is known to be JSON. Raises
    MessageRejected where the path does not lead to an object.
    """
    return _edited(text, _blank(text, 0), path, 0, members)


def _edited(text: str, start: int, path: Sequence[str], depth: int, members: Members) -> str:
    if text[start] != "{":
        told = "".join(f".{name}" for name in path[:depth])
        raise MessageRejected("NoObject", f"the body has no object at ${told}, expected one")
    if depth < len(path):
        step = path[depth]
        spans, end, is_empty = _spans(text, start, {step}, is_first_enough=True)
        if step in spans:
            return _edited(text, spans[step][0], path, depth + 1, members)
        if depth + 1 < len(path):
            told = "".join(f".{name}" for name in path[: depth + 1])
            raise MessageRejected("FieldMissing", f"the body has nothing at ${told}, expected an object")
        return _inserted(text, end, [(step, f"{{{_joined(members)}}}")], is_empty=is_empty)
    spans, end, is_empty = _spans(text, start, {name for name, _ in members})
    text = _inserted(text, end, [each for each in members if each[0] not in spans], is_empty=is_empty)
    values = dict(members)
    for name, (value_start, stop) in sorted(spans.items(), key=lambda each: each[1], reverse=True):
        text = text[:value_start] + values[name] + text[stop:]
    return text


def _spans(
    text: str, start: int, wanted: set[str], *, is_first_enough: bool = False
) -> tuple[dict[str, tuple[int, int]], int, bool]:
    """
    Return where the values of members of an object are, where its last member ends, and whether it has none.

    Where the first is enough, what is behind it is not looked at.
    """
    spans: dict[str, tuple[int, int]] = {}
    end = start + 1
    position = _blank(text, end)
    is_empty = text[position] == "}"
    while text[position] != "}":
        if text[position] == ",":
            position = _blank(text, position + 1)
        name, position = _DECODER.raw_decode(text, position)
        position = _blank(text, _blank(text, position) + 1)
        _, end = _DECODER.raw_decode(text, position)
        if name in wanted:
            spans[name] = position, end
            if is_first_enough:
                break
        position = _blank(text, end)
    return spans, end, is_empty


def _inserted(text: str, position: int, members: Members, *, is_empty: bool) -> str:
    if not members:
        return text
    return f"{text[:position]}{'' if is_empty else ', '}{_joined(members)}{text[position:]}"


def _joined(members: Members) -> str:
    return ", ".join(f"{json.dumps(name, ensure_ascii=False)}: {value}" for name, value in members)


def _blank(text: str, position: int) -> int:
    if text[position : position + 1] not in _BLANKS:
        return position
    found = _BLANK.match(text, position)
    return found.end() if found is not None else position
