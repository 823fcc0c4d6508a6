"""The reduce editor: less of a JSON body, or a flatter one, without an expression."""

import re
from collections.abc import Sequence
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, Field, model_validator

from shared.codecs.json import ExactJson, read_exact
from shared.editors.content.body import content_of, put_content
from shared.editors.options import Step, Strict, TaskFacts
from shared.errors import MessageRejected
from shared.message.message import Message

ITEMS = "[]"

_NAME = re.compile(r'(?:"((?:[^"\\]|\\["\\])+)"|([^."\[\]*\\]+))')


def steps_of(path: str) -> tuple[str, ...]:
    """
    Return the steps of a path such as `customer."zip.code"` or `lines[].price`; ValueError where it is none.

    Shape: a name, or ITEMS for every item of an array, which as a name is written in quotes.
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
                raise ValueError(f"is not a path: expected a name at character {position + 1}, in quotes if it has other characters")
            quoted, plain = found.groups()
            steps.append(plain if quoted is None else _Name(re.sub(r"\\(.)", r"\1", quoted)))
            position = found.end()
    return tuple(steps)


class _Name(str):
    """A name that was written in quotes, and is never ITEMS."""

    __slots__ = ()


def _checked(path: str) -> str:
    steps_of(path)
    return path


type Path = Annotated[str, AfterValidator(_checked)]
type Paths = Annotated[tuple[Path, ...], Field(strict=False, min_length=1)]


class ReduceOptions(Strict):
    """What is left of a body; at least one thing, carried out in the order in which they stand here."""

    keep: Paths | None = None
    """Paths of what is kept, such as `customer.name` or `lines[].price`; all else goes."""
    drop: Paths | None = None
    """Paths of what goes."""
    drop_nulls: bool = False
    """Whether members of objects that are null go."""
    drop_empty: bool = False
    """Whether members of objects that are an empty text, array or object go, or become that by it."""
    flatten: Annotated[str, Field(min_length=1)] | None = None
    """What stands between the names where nested ones become one: with `.` a member `customer.name`."""

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not (self.keep or self.drop or self.drop_nulls or self.drop_empty or self.flatten):
            raise ValueError("reduces nothing, expected keep, drop, drop_nulls, drop_empty or flatten")
        for dropped in self.drop or ():
            for kept in self.keep or ():
                if steps_of(kept)[: len(steps_of(dropped))] == steps_of(dropped):
                    raise ValueError(f"drops {dropped}, which contains {kept}, which it keeps: expected one of them")
        return self


class ReduceStep(Step):
    """Keeps or drops parts of a JSON body by their paths, drops what says nothing, and flattens it."""

    keeps_properties: ClassVar[bool] = True

    options: ReduceOptions = Field(alias="reduce")

    def editor(self, _: TaskFacts, /) -> "Reduce":
        """Return the editor that does what the options say."""
        return Reduce(self.options)


class Reduce:
    """
    Leaves less of a JSON body.

    A path that leads nowhere in a body leaves nothing and takes nothing away. Numbers keep every digit. Items of arrays
    keep their places: of an item of which nothing is kept an empty object is left.
    """

    name = "reduce"

    def __init__(self, options: ReduceOptions) -> None:
        """Do what *options* say."""
        from shared.codecs.json_writing import write  # noqa: PLC0415 - loads a library that few tasks need
        from shared.editors.content.flattening import flattened  # noqa: PLC0415 - likewise

        self._write = write
        self._flattened = flattened
        self._keep = None if options.keep is None else _tree(options.keep)
        self._drop = None if options.drop is None else _tree(options.drop)
        self._nulls, self._empty = options.drop_nulls, options.drop_empty
        self._separator = options.flatten

    def edit(self, message: Message) -> Sequence[Message]:
        """Return the message with what is left of its body, or raise MessageRejected."""
        try:
            content = self._write(self._reduced(read_exact(content_of(message))))
        except RecursionError as error:
            told = f"{self.name}: the body is nested too deeply to be reduced"
            raise MessageRejected("NestedTooDeeply", told) from error
        except MessageRejected as error:
            raise MessageRejected(error.reason, f"{self.name}: {error.description}") from error
        put_content(message, content)
        return (message,)

    def _reduced(self, value: ExactJson) -> ExactJson:
        if not isinstance(value, (dict, list)):
            raise MessageRejected("NothingToReduce", "the body is a single value, expected an object or an array")
        if self._keep is not None:
            value = _kept(value, self._keep)
        if self._drop is not None:
            _take_away(value, self._drop)
        if self._nulls or self._empty:
            self._prune(value)
        return value if self._separator is None else self._flattened(value, self._separator)

    def _prune(self, value: ExactJson) -> None:
        """Take away the members that say nothing, the innermost first."""
        if isinstance(value, list):
            for each in value:
                self._prune(each)
        elif isinstance(value, dict):
            for name, each in [*value.items()]:
                self._prune(each)
                if (self._nulls and each is None) or (self._empty and each in ("", [], {})):
                    del value[name]


type _Tree = dict[tuple[bool, str], _Tree | None]
"""Of each step (whether it is ITEMS, and the name) those that may follow; None where a path ends."""


def _tree(paths: Sequence[str]) -> _Tree:
    tree: _Tree = {}
    # Of two paths the shorter one, which says more, comes first.
    for steps in sorted(map(steps_of, paths), key=len):
        at: _Tree | None = tree
        for index, step in enumerate(steps):
            if at is None:
                break
            key = (step == ITEMS and not isinstance(step, _Name), str(step))
            at = at.setdefault(key, None if index == len(steps) - 1 else {})
    return tree


def _kept(value: ExactJson, tree: _Tree) -> ExactJson:
    """Return what is left of an object or array; of what is neither, or not what the paths say, an empty object."""
    if isinstance(value, dict):
        kept: dict[str, ExactJson] = {}
        for (is_items, name), inner in tree.items():
            if not is_items and name in value:
                each = value[name]
                if inner is None:
                    kept[name] = each
                elif _leads_on(each, inner):
                    kept[name] = _kept(each, inner)
        return {name: kept[name] for name in value if name in kept}
    if isinstance(value, list) and (True, ITEMS) in tree:
        inner = tree[True, ITEMS]
        return value if inner is None else [_kept(each, inner) for each in value]
    return [] if isinstance(value, list) else {}


def _leads_on(value: ExactJson, tree: _Tree) -> bool:
    """Tell whether *value* is of the kind that the next step of a path asks for."""
    is_items = (True, ITEMS) in tree
    return (isinstance(value, list) and is_items) or (isinstance(value, dict) and any(not each[0] for each in tree))


def _take_away(value: ExactJson, tree: _Tree) -> None:
    for (is_items, name), inner in tree.items():
        if is_items and isinstance(value, list):
            if inner is None:
                value.clear()
            else:
                for each in value:
                    _take_away(each, inner)
        elif not is_items and isinstance(value, dict) and name in value:
            if inner is None:
                del value[name]
            else:
                _take_away(value[name], inner)
