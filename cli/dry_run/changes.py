"""The difference between two messages as text."""

import difflib
from collections.abc import Iterator, Mapping

from shared.message.message import Message
from shared.message.view import body_lines, fields

BODY = "body"

_CONTEXT_LINES = 3

type View = Mapping[str, str]
"""The fields and properties of a message by name, and the lines of its body."""


def view(message: Message) -> dict[str, str]:
    """Return all fields, properties and annotations of *message*, and its body."""
    return {field.name: field.text for field in fields(message)} | {BODY: "\n".join(body_lines(message))}


def changes(before: View, after: View) -> dict[str, tuple[str | None, str | None]]:
    """Return the values that differ, by name: before and after, None if missing."""
    names = sorted({**before, **after}, key=lambda name: name == BODY)
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}


def diff_lines(before: View, after: View) -> Iterator[str]:
    """Yield the lines of a difference: `-` before, `+` after; changes of the body with the lines around them."""
    for name, (was, now) in changes(before, after).items():
        if name == BODY:
            yield from _body_difference((was or "").split("\n"), (now or "").split("\n"))
            continue
        if was is not None:
            yield f"- {name}: {was}"
        if now is not None:
            yield f"+ {name}: {now}"


def _body_difference(before: list[str], after: list[str]) -> Iterator[str]:
    yield "  body:"
    for line in difflib.unified_diff(before, after, lineterm="", n=_CONTEXT_LINES):
        if line.startswith("@@"):
            yield "    …"
        elif line not in ("--- ", "+++ "):
            yield f"{line[0]}   {line[1:]}"
