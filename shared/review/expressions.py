r"""
Checks the regular expressions in JSON schemas: a short text may take exponential time.

Python's `re` tries all ways in which a text can be divided among repetitions. There are exponentially many if the
rounds of an unlimited repetition may have different lengths and nothing in them marks where a round ends: `(a+)+`,
`(\s*\w+\s*)*`, but not `(-[a-z]+)*`, whose rounds begin with a hyphen. The same goes for a round that has alternatives
for the same character.
"""

import re
from collections.abc import Iterator
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]  # the tree of an expression has no public name
from typing import Any

from shared.editors.content.ecma_patterns import python_pattern
from shared.editors.validate import ValidateStep
from shared.review.checks import Checks, Finding
from shared.review.network import Network


def findings(network: Network) -> Iterator[Finding]:
    """Yield regular expressions that a short text may keep busy."""
    for task in network.tasks:
        for number, step in enumerate(task.editors):
            schema = step.options.body_schema if isinstance(step, ValidateStep) else None
            for pattern in () if schema is None else schema.patterns:
                problem = nested_quantifier(python_pattern(pattern.expression))
                if problem is not None:
                    path = network.place(task, f"editors[{number}].validate.schema")
                    seen = f"{pattern.file}: {pattern.path}: {pattern.expression!r}: {problem}"
                    yield Finding(Checks.SLOW_PATTERN, path, seen)


# Fewer rounds divide a text in few ways.
_MANY = 10
# A sample of all characters: ASCII, Latin-1, and some of other scripts.
_CHARACTERS = frozenset(map(chr, (*range(256), 0x3B1, 0x416, 0x5D0, 0x661, 0x2003, 0x4E2D, 0x1F600)))
_SINGLE = frozenset((_constants.NOT_LITERAL, _constants.ANY, _constants.IN))
_REPEATS = frozenset((_constants.MAX_REPEAT, _constants.MIN_REPEAT))

type _Node = tuple[Any, Any]
"""An operation and its arguments, as the parser of `re` returns them."""


def nested_quantifier(pattern: str) -> str | None:
    """Return the problem of a regular expression; None without one, and for text that is not an expression."""
    try:
        tree = _parser.parse(pattern)
    except (re.error, RecursionError, OverflowError):
        return None
    for body in _repeated(list(tree)):
        for round_ in _alternatives(body):
            if _has_open_length(round_):
                return "a repetition contains another one, and nothing between them that only one of them matches"
            if any(_has_equal_branches(each) for each in round_):
                return "a repetition contains alternatives that match the same characters"
    return None


def _repeated(nodes: list[_Node]) -> Iterator[list[_Node]]:
    """Yield what is repeated without a limit, at any depth."""
    for operation, arguments in nodes:
        if operation in _REPEATS and arguments[1] >= _MANY:
            yield list(arguments[2])
        for inner in _inner(operation, arguments):
            yield from _repeated(inner)


def _inner(operation: Any, arguments: Any) -> list[list[_Node]]:  # noqa: ANN401 - see _Node
    """Return the sequences inside a node."""
    if operation in _REPEATS or operation is _constants.POSSESSIVE_REPEAT:
        return [list(arguments[2])]
    if operation is _constants.SUBPATTERN:
        return [list(arguments[3])]
    if operation is _constants.BRANCH:
        return [list(each) for each in arguments[1]]
    if operation in (_constants.ASSERT, _constants.ASSERT_NOT):
        return [list(arguments[1])]
    return [list(arguments)] if operation is _constants.ATOMIC_GROUP else []


def _alternatives(nodes: list[_Node]) -> Iterator[list[_Node]]:
    """Yield a sequence without groups at the top, and the branches if it is nothing but these."""
    flat = [each for node in nodes for each in _flat(node)]
    yield flat
    if len(flat) == 1 and flat[0][0] is _constants.BRANCH:
        for inner in _inner(*flat[0]):
            yield from _alternatives(inner)


def _flat(node: _Node) -> list[_Node]:
    if node[0] is _constants.SUBPATTERN:
        return [each for inner in _inner(*node) for part in inner for each in _flat(part)]
    return [node]


def _has_open_length(nodes: list[_Node]) -> bool:
    """Return whether a part of varying length in a sequence matches whatever else the sequence must match."""
    for number, node in enumerate(nodes):
        operation, arguments = node
        if operation in _REPEATS:
            least, most, _ = arguments
        elif operation is _constants.BRANCH and _may_be_empty(node):
            least, most = 0, 1
        else:
            continue
        others = [each for each in (*nodes[:number], *nodes[number + 1 :]) if not _may_be_empty(each)]
        if least == most or (most == 1 and not others):
            continue
        own = _characters([node])
        if all(_characters([other]) & own for other in others):
            return True
    return False


def _has_equal_branches(node: _Node) -> bool:
    """Return whether a node has two alternatives of one character that may be the same."""
    if node[0] is not _constants.BRANCH:
        return False
    seen: frozenset[str] = frozenset()
    for branch in _inner(*node):
        if len(branch) == 1 and not _may_be_empty(branch[0]):
            characters = _characters(branch)
            if characters & seen:
                return True
            seen |= characters
    return False


def _may_be_empty(node: _Node) -> bool:
    operation, arguments = node
    if operation in _REPEATS or operation is _constants.POSSESSIVE_REPEAT:
        return bool(arguments[0] == 0 or all(map(_may_be_empty, arguments[2])))
    if operation is _constants.SUBPATTERN:
        return all(map(_may_be_empty, arguments[3]))
    if operation is _constants.BRANCH:
        return any(all(map(_may_be_empty, each)) for each in arguments[1])
    return operation in (_constants.AT, _constants.ASSERT, _constants.ASSERT_NOT)


def _characters(nodes: list[_Node]) -> frozenset[str]:
    """Return the characters of the sample that a sequence may match somewhere."""
    found: frozenset[str] = frozenset()
    for node in nodes:
        operation, arguments = node
        if operation is _constants.LITERAL:
            found |= {chr(arguments)}
        elif operation in _SINGLE:
            matches = _compiler.compile(_parser.SubPattern(_parser.State(), [node])).match
            found |= {character for character in _CHARACTERS if matches(character)}
        else:
            for inner in _inner(operation, arguments):
                found |= _characters(inner)
    return found
