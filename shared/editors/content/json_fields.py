"""
Fields of a JSON body, replaced in its text, so that everything else keeps every byte.

A path is the part of JSONPath (RFC 9535) that leads to single values: `$`, then `.name`, `['name']`, `[0]`, and `.*` or
`[*]` for every member or item.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, Field

from shared.codecs.json import NOT_JSON, read
from shared.codecs.json_spans import Edit, apply_edits, entries, first_value
from shared.errors import MessageRejected

type Step = str | int | None
"""A member, an item, or None for all of either."""
type Steps = tuple[Step, ...]

_STEP = re.compile(
    r"\.(?P<name>[^\W\d]\w*)|(?P<all>\.\*|\[\*\])|\[(?P<index>0|[1-9]\d{0,8})\]|\['(?P<quoted>[^'\\]*)'\]"
    r'|\["(?P<double>[^"\\]*)"\]'
)


def parse_path(text: str) -> Steps:
    """Return the steps of a path; raises ValueError for an invalid one."""
    if not text.startswith("$") or text == "$":
        raise ValueError(f"{text!r} is not a path to a field, expected $ and steps such as .name, ['name'], [0] or [*]")
    steps: list[Step] = []
    position = 1
    while position < len(text):
        found = _STEP.match(text, position)
        if found is None:
            problem = f"{text!r} cannot be read at {text[position:]!r}, expected .name, ['name'], [0], .* or [*]"
            raise ValueError(problem)
        index = found["index"]
        names = [found[group] for group in ("name", "quoted", "double") if found[group] is not None]
        steps.append(names[0] if names else None if index is None else int(index))
        position = found.end()
    return tuple(steps)


def _check_apart(paths: tuple[str, ...]) -> tuple[str, ...]:
    parsed = [parse_path(path) for path in paths]
    for index, path in enumerate(parsed):
        for other, text in zip(parsed[:index], paths, strict=False):
            if all(one is None or two is None or one == two for one, two in zip(path, other, strict=False)):
                raise ValueError(f"{paths[index]} and {text} may lead to one field, or into one another")
    return paths


type FieldPaths = Annotated[
    tuple[str, ...], Field(strict=False, min_length=1, examples=[["$.card.number"]]), AfterValidator(_check_apart)
]
"""Paths of which no two can lead to the same field, or into one another."""


class Fields:
    """The fields at some paths, in any JSON text."""

    def __init__(self, paths: Iterable[str], *, optional: bool) -> None:
        """Reject a body that has nothing at one of *paths*, unless they are *optional*."""
        self._optional = optional
        self._tree = _tree([(parse_path(path), path) for path in paths])

    def replace(self, content: bytes, replacement: Callable[[str, str], str]) -> bytes:
        """
        Return *content* with each field replaced by *replacement* of its text and its normalized path.

        Raises MessageRejected if the content is not JSON, or a path that is not optional finds no field.
        """
        read(content)
        text = content.decode()
        edits: list[Edit] = []
        try:
            for start, stop, path in self._find(text, first_value(text), self._tree, "$"):
                edits.append((start, stop, replacement(text[start:stop], path)))
        except RecursionError as error:
            raise MessageRejected(NOT_JSON, "body is JSON that is nested too deeply") from error
        return apply_edits(text, edits).encode()

    def _find(self, text: str, start: int, tree: "_Tree", path: str) -> Iterator[Edit]:
        """Yield where each field of the value at *start* begins and ends, and its normalized path."""
        opening = text[start]
        if opening not in "{[" or not tree.fits(is_object=opening == "{"):
            self._check_missing(tree)
            return
        seen: set[Step] = set()
        for key, begin, end in entries(text, start):
            inner = tree.branch(key)
            if inner is None:
                continue
            seen.add(key)
            step = f"[{key}]" if isinstance(key, int) else f"[{json.dumps(key, ensure_ascii=False)}]"
            if inner.is_field:
                yield begin, end, path + step
            else:
                yield from self._find(text, begin, inner, path + step)
        for wanted, branch in tree.branches.items():
            if wanted is not None and wanted not in seen:
                self._check_missing(branch)

    def _check_missing(self, tree: "_Tree") -> None:
        if not self._optional:
            raise MessageRejected("FieldMissing", f"the body has nothing at {tree.name}")


class _Tree(NamedTuple):
    """The paths below one step, and one that leads through it."""

    name: str
    branches: Mapping[Step, "_Tree"]
    is_field: bool

    def branch(self, key: Step) -> "_Tree | None":
        """Return the paths below a member or an item, None without any."""
        return self.branches.get(key, self.branches.get(None))

    def fits(self, *, is_object: bool) -> bool:
        """Return whether any step leads into an object, or an array."""
        return any(key is None or isinstance(key, str) == is_object for key in self.branches)


def _tree(paths: Sequence[tuple[Steps, str]]) -> _Tree:
    grouped: dict[Step, list[tuple[Steps, str]]] = {}
    for steps, path in paths:
        if steps:
            grouped.setdefault(steps[0], []).append((steps[1:], path))
    is_field = any(not steps for steps, _ in paths)
    return _Tree(paths[0][1], {step: _tree(group) for step, group in grouped.items()}, is_field)
