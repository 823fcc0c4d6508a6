"""The documents of a YAML file, with every fault as a problem: no key twice, nothing nested too deeply."""

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from shared.errors import Problem


def documents_in(path: Path, problems: list[Problem]) -> Iterator[tuple[str, object]]:
    """Yield the documents of the file *path* with the place of each for errors; add what is wrong to *problems*."""
    try:
        text = path.read_text(encoding="utf-8")
        loader = _CarefulLoader if _may_be_deep(text) else _Loader
        documents = [document for document in yaml.load_all(text, loader) if document is not None]
    except FileNotFoundError:
        problems.append(Problem(str(path), "the file is missing"))
    except (OSError, UnicodeDecodeError) as error:
        problems.append(Problem(str(path), f"cannot be read as UTF-8 text: {error}"))
    except RecursionError:
        problems.append(Problem(str(path), "is nested too deeply, expected at most a few dozen levels"))
    except yaml.YAMLError as error:
        problems.append(_problem(path, error))
    except ValueError as error:
        problems.append(Problem(str(path), f"has an invalid date or number: {error}", _QUOTES))
    else:
        if not documents:
            problems.append(Problem(str(path), "the file is empty"))
        for number, document in enumerate(documents, 1):
            yield (f"{path}: document {number}" if len(documents) > 1 else str(path)), document


_QUOTES = "put a text into quotes if it has `: ` or ` #` in it, or begins with a sign such as @ ` % & * ! [ {"
_WORDS = (
    ("mapping values are not allowed", "has a second `: ` in the line, or the line is indented too far", _QUOTES),
    ("tab character", "has a tab", "indent with spaces"),
    ("',' or ']'", "the list that begins here has no end, or lacks a comma", "close it with ]"),
    ("',' or '}'", "what begins here with { has no end, or lacks a comma", "close it with }"),
    (
        "unexpected end of stream",
        "the text that begins here has no closing quote",
        "close it, or leave out both quotes",
    ),
    ("expected key", "does not fit the lines above it", "indent it as its neighbours; " + _QUOTES),
    ("expected <block end>", "does not fit the lines above it", "indent it as its neighbours; " + _QUOTES),
    ("node content", "lacks a value here", "write one, remove a comma, or close a bracket"),
    ("unhashable key", "has a list or a mapping as a key", _QUOTES),
    ("for merging", "has a `<<` with something else than a mapping", "write the keys themselves"),
    ("base64", "has a value that is not Base64", "leave out !!binary"),
    ("expected ':'", "is not `key: value`", "add a colon and a space"),
    ("cannot start any token", "has a text that begins with a character of YAML", _QUOTES),
    ("alias", "has a text that begins with *", _QUOTES),
    ("anchor", "has a text that begins with &", _QUOTES),
    ("alphabetic or numeric", "has a text that begins with * or &", _QUOTES),
    ("block sequence entries", "has an item `- ` behind something else", "begin a line with it"),
    ("constructor for the tag", "has a text that begins with !", _QUOTES),
    ("special characters", "has a character that no text may have", "remove it"),
    ("control characters", "has a character that no text may have", "remove it"),
)
"""What the parser says, in words of people, and what to do."""
_OPENED = frozenset(("',' or ']'", "',' or '}'", "unexpected end of stream", "expected ':'"))
"""What is shown where it begins, not where the parser gave up."""


def _problem(path: Path, error: yaml.YAMLError) -> Problem:
    said = str(getattr(error, "problem", None) or error)
    for phrase, text, hint in _WORDS:
        if phrase in said:
            mark = getattr(error, "context_mark" if phrase in _OPENED else "problem_mark", None)
            return Problem(_place(path, mark), text, hint)
    return Problem(_place(path, getattr(error, "problem_mark", None)), said)


def _place(path: Path, mark: yaml.Mark | None) -> str:
    return str(path) if mark is None else f"{path}: line {mark.line + 1}, column {mark.column + 1}"


_STRING = "tag:yaml.org,2002:str"
_TEXT = frozenset((_STRING, "tag:yaml.org,2002:merge"))


class _UniqueKeys:
    """Makes a YAML loader reject duplicate keys, and take text, of which files mostly consist, as it is."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> object:
        if node.tag == _STRING and isinstance(node, yaml.ScalarNode):
            return node.value
        return super().construct_object(node, deep)  # type: ignore[misc]  # the loader's

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            # Only scalars can be text, and the value of one that is text is the text.
            if key_node.tag not in _TEXT:
                continue
            key = key_node.value
            if key in seen:
                problem = f"duplicate key {key!r}"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            seen.add(key)
        constructed: dict[object, object] = super().construct_mapping(node, deep)  # type: ignore[misc]  # likewise
        return constructed


class _CarefulLoader(_UniqueKeys, yaml.SafeLoader):
    """The loader in Python, which refuses what is nested too deeply."""


# libyaml reads a file several times as fast; it comes with PyYAML's wheels.
class _Loader(_UniqueKeys, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # one of two classes
    """The loader in C if there is one; it does not notice when the stack ends."""


def _may_be_deep(text: str) -> bool:
    """Return whether *text* may be nested more deeply than any configuration; brackets in quotes count too."""
    depth = deepest = 0
    for bracket in _BRACKETS.findall(text):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest > _MOST_LEVELS or _DEEP_BLOCK.search(text) is not None


_MOST_LEVELS = 50
_BRACKETS = re.compile(r"[\[\]{}]")
# Far to the right, or a list in a list in a list in one line.
_DEEP_BLOCK = re.compile(rf"(?m)^(?: {{{4 * _MOST_LEVELS}}}|(?:[-?] +){{{_MOST_LEVELS}}})")
