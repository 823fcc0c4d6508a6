"""
Fields of a JSON body, found where they stand in its text, so that all the rest of it keeps every byte.

A path is the part of JSONPath (RFC 9535) that leads to single values: `$`, then `.name`, `['name']`, `[0]`, and `.*` or
`[*]` for every member or item.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field

from shared.codecs.json import NOT_JSON, read
from shared.errors import MessageRejected

type Step = str | int | None
"""A member, an item, or None for all of either."""
type Steps = tuple[Step, ...]

_STEP = re.compile(
    r"\.(?P<name>[^\W\d]\w*)|(?P<all>\.\*|\[\*\])|\[(?P<index>0|[1-9]\d{0,8})\]|\['(?P<quoted>[^'\\]*)'\]"
    r'|\["(?P<double>[^"\\]*)"\]'
)
_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


class Span(NamedTuple):
    """Where the text of a value begins and ends, and the way to it."""

    start: int
    stop: int
    path: str


def parsed_path(text: str) -> Steps:
    """Return the steps of a path; ValueError where it is none."""
    if not text.startswith("$") or text == "$":
        raise ValueError(f"{text!r} is no path to a field, expected $ and steps such as .name, ['name'], [0] or [*]")
    steps: list[Step] = []
    position = 1
    while position < len(text):
        found = _STEP.match(text, position)
        if found is None:
            raise ValueError(
                f"{text!r} cannot be read at {text[position:]!r}, expected .name, ['name'], [0], .* or [*]"
            )
        index = found["index"]
        names = [found[group] for group in ("name", "quoted", "double") if found[group] is not None]
        steps.append(names[0] if names else None if index is None else int(index))
        position = found.end()
    return tuple(steps)


def _apart(paths: tuple[str, ...]) -> tuple[str, ...]:
    parsed = [parsed_path(path) for path in paths]
    for index, path in enumerate(parsed):
        for other, text in zip(parsed[:index], paths, strict=False):
            if all(one is None or two is None or one == two for one, two in zip(path, other, strict=False)):
                raise ValueError(f"{paths[index]} and {text} may lead to one field, or into one another")
    return paths


type FieldPaths = Annotated[
    tuple[str, ...], Field(strict=False, min_length=1, examples=[["$.card.number"]]), AfterValidator(_apart)
]
"""Paths of which none leads to what another one leads to."""


class Fields:
    """The fields at some paths, in any JSON text."""

    def __init__(self, paths: Iterable[str], *, optional: bool) -> None:
        """Let a path that leads nowhere be a fault unless *optional*."""
        self._optional = optional
        self._tree = _tree([(parsed_path(path), path) for path in paths])

    def replaced(self, content: bytes, replacement: Callable[[str, str], str]) -> bytes:
        """
        Return *content* with every field's text replaced by what is returned for it and its normalized path.

        Raises MessageRejected where the content is no JSON, or has not a field that it must have.
        """
        read(content)
        text = content.decode()
        spans: list[Span] = []
        try:
            self._walk(text, _blank(text, 0), self._tree, "$", spans)
        except RecursionError as error:
            raise MessageRejected(NOT_JSON, "body is JSON nested too deeply to be looked through") from error
        parts = []
        position = 0
        for start, stop, path in sorted(spans):
            parts += [text[position:start], replacement(text[start:stop], path)]
            position = stop
        return "".join([*parts, text[position:]]).encode()

    # The text is known to be JSON: what is walked over need not be judged again.

    def _walk(self, text: str, start: int, tree: "_Tree", path: str, spans: list[Span]) -> int:
        """Add the fields of the value at *start*, and return where it ends."""
        if tree.is_field:
            _, stop = _DECODER.raw_decode(text, start)
            spans.append(Span(start, stop, path))
            return stop
        opening = text[start]
        if opening not in "{[" or not tree.fits(is_object=opening == "{"):
            self._miss(tree)
            _, stop = _DECODER.raw_decode(text, start)
            return stop
        closing = "}" if opening == "{" else "]"
        seen: set[Step] = set()
        position = _blank(text, start + 1)
        number = 0
        while text[position] != closing:
            if position > start + 1 and text[position] == ",":
                position = _blank(text, position + 1)
            key: Step = number
            if opening == "{":
                key, position = _DECODER.raw_decode(text, position)
                position = _blank(text, _blank(text, position) + 1)
            number += 1
            branch = tree.branch(key)
            if branch is None:
                _, position = _DECODER.raw_decode(text, position)
            else:
                seen.add(key)
                step = f"[{key}]" if isinstance(key, int) else f"[{json.dumps(key, ensure_ascii=False)}]"
                position = self._walk(text, position, branch, path + step, spans)
            position = _blank(text, position)
        for key, branch in tree.branches.items():
            if key is not None and key not in seen:
                self._miss(branch)
        return position + 1

    def _miss(self, tree: "_Tree") -> None:
        if not self._optional:
            raise MessageRejected("FieldMissing", f"the body has nothing at {tree.name}")


class _Tree:
    """What is looked for below one step."""

    def __init__(self, name: str, branches: Mapping[Step, "_Tree"], *, is_field: bool) -> None:
        """Name it by a path that leads through it."""
        self.name = name
        self.is_field = is_field
        self.branches = branches

    def branch(self, key: Step) -> "_Tree | None":
        """Return what is looked for below a member or an item, None for nothing."""
        return self.branches.get(key, self.branches.get(None))

    def fits(self, *, is_object: bool) -> bool:
        """Tell whether any step leads into an object, or an array."""
        return any(key is None or isinstance(key, str) == is_object for key in self.branches)


def _tree(paths: Sequence[tuple[Steps, str]]) -> _Tree:
    grouped: dict[Step, list[tuple[Steps, str]]] = {}
    for steps, path in paths:
        if steps:
            grouped.setdefault(steps[0], []).append((steps[1:], path))
    return _Tree(
        paths[0][1], {step: _tree(group) for step, group in grouped.items()}, is_field=any(not s for s, _ in paths)
    )


def _blank(text: str, position: int) -> int:
    found = _BLANK.match(text, position)
    return found.end() if found is not None else position
