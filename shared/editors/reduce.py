"""The reduce editor: removes parts of a JSON body, or flattens it."""

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, Field, model_validator

from shared.codecs.json import ExactJson, read_exact, write
from shared.editors.content.body import content_of, put_content
from shared.editors.content.flattening import flatten
from shared.editors.options import MessageStep, Strict
from shared.errors import MessageRejected
from shared.message.message import Message

ITEMS = "[]"

_NAME = re.compile(r'(?:"((?:[^"\\]|\\["\\])+)"|([^."\[\]*\\]+))')


def steps_of(path: str) -> tuple[str, ...]:
    """
    Return the steps of a path such as `customer."zip.code"` or `lines[].price`; raises ValueError for an invalid one.

    Shape: names, and ITEMS for every item of an array; a name of that spelling is in quotes.
    """
    steps: list[str] = []
    position = 0
    while position < len(path) or not steps:
        if path.startswith(ITEMS, position):
            steps.append(ITEMS)
            position += len(ITEMS)
        else:
            if steps and path[position] != ".":
                raise ValueError(f"is not a path: expected . or [] at character {position + 1}")
            position += bool(steps)
            found = _NAME.match(path, position)
            if found is None:
                raise ValueError(
                    f"is not a path: expected a name at character {position + 1}, in quotes if it has other characters"
                )
            quoted, plain = found.groups()
            steps.append(plain if quoted is None else _Name(re.sub(r"\\(.)", r"\1", quoted)))
            position = found.end()
    return tuple(steps)


class _Name(str):
    """A name in quotes, which is never ITEMS."""

    __slots__ = ()


def _checked(path: str) -> str:
    steps_of(path)
    return path


type Path = Annotated[str, AfterValidator(_checked)]
type Paths = Annotated[tuple[Path, ...], Field(strict=False, min_length=1)]


class ReduceOptions(Strict):
    """Changes to a body, at least one, applied in this order."""

    keep: Paths | None = None
    """Paths to keep, such as `customer.name` or `lines[].price`; everything else is removed."""
    drop: Paths | None = None
    """Paths to remove."""
    drop_nulls: bool = False
    """Whether to remove members of objects that are null."""
    drop_empty: bool = False
    """Whether to remove members that are an empty text, array or object, also if they become empty by this."""
    flatten: Annotated[str, Field(min_length=1)] | None = None
    """Flattens nested objects; the separator between their names: with `.` a member `customer.name`."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not (self.keep or self.drop or self.drop_nulls or self.drop_empty or self.flatten):
            raise ValueError("reduces nothing, expected keep, drop, drop_nulls, drop_empty or flatten")
        for dropped in self.drop or ():
            for kept in self.keep or ():
                if steps_of(kept)[: len(steps_of(dropped))] == steps_of(dropped):
                    raise ValueError(f"drops {dropped}, which contains {kept}, which it keeps: expected one of them")
        return self


class ReduceStep(MessageStep):
    """Keeps or drops parts of a JSON body by their paths, drops null and empty members, and flattens it."""

    keeps_properties: ClassVar[bool] = True

    options: ReduceOptions = Field(alias="reduce")

    @cached_property
    def _kept(self) -> "_Tree":
        return _tree(self.options.keep or ())

    @cached_property
    def _dropped(self) -> "_Tree":
        return _tree(self.options.drop or ())

    def edit(self, message: Message) -> Sequence[Message]:
        """
        Return the message with a reduced body; raises MessageRejected.

        A path that is not in a body has no effect. Numbers keep every digit. Items of arrays keep their places: an item
        of which nothing is kept becomes an empty object.
        """
        try:
            content = write(self._reduce(read_exact(content_of(message))))
        except RecursionError as error:
            raise MessageRejected("NestedTooDeeply", "the body is nested too deeply to be reduced") from error
        put_content(message, content)
        return (message,)

    def _reduce(self, value: ExactJson) -> ExactJson:
        if not isinstance(value, (dict, list)):
            raise MessageRejected("NothingToReduce", "the body is a single value, expected an object or an array")
        options = self.options
        if options.keep is not None:
            value = _keep(value, self._kept)
        _remove(value, self._dropped)
        if options.drop_nulls or options.drop_empty:
            self._prune(value)
        return value if options.flatten is None else flatten(value, options.flatten)

    def _prune(self, value: ExactJson) -> None:
        """Remove null or empty members, the innermost first."""
        options = self.options
        if isinstance(value, list):
            for each in value:
                self._prune(each)
        elif isinstance(value, dict):
            for name, each in [*value.items()]:
                self._prune(each)
                if (options.drop_nulls and each is None) or (options.drop_empty and each in ("", [], {})):
                    del value[name]


type _Tree = dict[tuple[bool, str], _Tree | None]
"""The next steps by step (whether it is ITEMS, and the name); None at the end of a path."""


def _tree(paths: Sequence[str]) -> _Tree:
    tree: _Tree = {}
    # The shorter of two paths, which covers more, comes first.
    for steps in sorted(map(steps_of, paths), key=len):
        at: _Tree | None = tree
        for index, step in enumerate(steps):
            if at is None:
                break
            key = (step == ITEMS and not isinstance(step, _Name), str(step))
            at = at.setdefault(key, None if index == len(steps) - 1 else {})
    return tree


def _keep(value: ExactJson, tree: _Tree) -> ExactJson:
    """Return the kept parts of an object or array; an empty object for other values."""
    if isinstance(value, dict):
        kept: dict[str, ExactJson] = {}
        for (is_items, name), inner in tree.items():
            if not is_items and name in value:
                each = value[name]
                if inner is None:
                    kept[name] = each
                elif _leads_on(each, inner):
                    kept[name] = _keep(each, inner)
        return {name: kept[name] for name in value if name in kept}
    if isinstance(value, list) and (True, ITEMS) in tree:
        inner = tree[True, ITEMS]
        return value if inner is None else [_keep(each, inner) for each in value]
    return [] if isinstance(value, list) else {}


def _leads_on(value: ExactJson, tree: _Tree) -> bool:
    """Return whether *value* is of the kind that the next step of a path needs."""
    is_items = (True, ITEMS) in tree
    return (isinstance(value, list) and is_items) or (isinstance(value, dict) and any(not each[0] for each in tree))


def _remove(value: ExactJson, tree: _Tree) -> None:
    for (is_items, name), inner in tree.items():
        if is_items and isinstance(value, list):
            if inner is None:
                value.clear()
            else:
                for each in value:
                    _remove(each, inner)
        elif not is_items and isinstance(value, dict) and name in value:
            if inner is None:
                del value[name]
            else:
                _remove(value[name], inner)
