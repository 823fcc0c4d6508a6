"""The python editor: a function of your own; `shared.editors.function_api` says what it looks like."""

import copy
import hashlib
import importlib
import inspect
import logging
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Annotated

from pydantic import Field, PlainValidator, ValidationInfo, WithJsonSchema

from shared.amqp import map_section
from shared.amqp.sections import Sections
from shared.editors.options import FOLDER, Step, TaskFacts
from shared.editors.ordering import OWN, PARTITION_KEY, part_id
from shared.errors import MessageRejected
from shared.message.message import Message
from shared.protocols import Withheld

FAILED = "EditorFailed"

_LOGGER = logging.getLogger("busway.editors")
_NAME = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"
_PATTERN = re.compile(_NAME)
_MESSAGE_ID = 0
_GROUP_ID = 10
_NULL = b"\x40"
_OWN = OWN.encode()


def load_function(name: object, info: ValidationInfo) -> "OwnFunction":
    """Return the function `module:name` of the configuration folder or the app; ValueError where there is none."""
    if not isinstance(name, str) or not _PATTERN.fullmatch(name):
        raise ValueError("expected a function as package.module:function")
    module_name, _, attribute = name.partition(":")
    folder = (info.context or {}).get(FOLDER)
    module = _imported(module_name, None if folder is None else Path(folder))
    function = getattr(module, attribute, None)
    if function is None:
        raise ValueError(f"module {module_name} has no {attribute}")
    if not callable(function) or inspect.isclass(function):
        raise ValueError(f"{name} is a {type(function).__name__}, expected a function")
    called = function if inspect.isroutine(function) else type(function).__call__
    if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
        raise ValueError(f"{name} is asynchronous, expected a function that does no I/O and returns at once")
    if inspect.isgeneratorfunction(called):
        raise ValueError(f"{name} is a generator, expected a function that returns messages")
    try:
        inspect.signature(function).bind(None)
    except TypeError as error:
        raise ValueError(f"{name} cannot be called with a message alone: {error}") from error
    return OwnFunction(name, function)


class OwnFunction:
    """A function of the user's, by the name that the task file gives it."""

    def __init__(self, name: str, function: Callable[[Message], object]) -> None:
        """Keep both."""
        self.name = name
        self.call = function


class PythonStep(Step):
    """Gives each message to a function of your own; one that fails sets the message aside."""

    function: Annotated[
        OwnFunction, PlainValidator(load_function), WithJsonSchema({"type": "string", "pattern": _NAME})
    ] = Field(alias="python")
    """Function as `package.module:function`; the module is found in the folder of connections.yaml, else in the app."""

    def editor(self, _: TaskFacts, /) -> "Python":
        """Return the editor that does what the options say."""
        return Python(self.function)


class Python:
    """
    Gives each message to a function of the user's and looks at what comes back.

    Id, session, partition key, arrival and Busway's own properties have to be what they were. An exception of the
    function sets the message aside; its text, which may quote the body, is told nowhere.
    """

    name = "python"

    def __init__(self, function: OwnFunction) -> None:
        """Call *function*."""
        self._call = function.call
        self._told = f"{self.name} {function.name}"

    def edit(self, message: Message) -> Sequence[Message] | Withheld:
        """Return what the function returns, or raise MessageRejected."""
        kept = _Kept(message)
        try:
            found = self._call(message)
        except MessageRejected as error:
            raise MessageRejected(str(error.reason), f"{self._told}: {error.description}") from error
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever it raises, the message is at fault
            _LOGGER.debug("%s failed at\n%s", self._told, "".join(traceback.format_tb(error.__traceback__)))
            # Without a cause, whose text may quote the body.
            raise self._rejected(f"failed with {type(error).__name__}") from None
        if found is None:
            return Withheld(f"withheld by {self._told}")
        messages = (found,) if isinstance(found, Message) else found
        if not isinstance(messages, (list, tuple)) or not all(isinstance(each, Message) for each in messages):
            raise self._rejected(f"returned a {type(found).__name__}, expected a message, a list of messages or None")
        if not messages:
            return Withheld(f"withheld by {self._told}")
        for each in messages:
            changed = kept.changed(each)
            if changed is not None:
                raise self._rejected(f"changed {changed}, which has to stay as it was")
        messages = _distinct(messages)
        if len(messages) > 1:
            # A target that detects duplicates would otherwise keep the first of them only.
            for number, part in enumerate(messages):
                part.message_id = part_id(part, number)
        return messages

    def _rejected(self, told: str) -> MessageRejected:
        return MessageRejected(FAILED, f"{self._told}: {told}")


class _Kept:
    """What a function has to leave alone, as it was before."""

    def __init__(self, message: Message) -> None:
        self._arrival = message.arrival
        self._raw = copy.copy(message.sections)

    def changed(self, message: Message) -> str | None:
        """Return what *message* has differently, None where it has all as it was."""
        raw = message.sections
        if message.arrival is not self._arrival and message.arrival != self._arrival:
            return "the arrival"
        if not isinstance(raw, Sections) or not all(isinstance(each, bytes) for each in _all_of(raw)):
            return "a section to what is no bytes"
        # A section with the same bytes is not looked into: that saves 2.7 µs.
        before = Message(self._raw, self._arrival)
        if raw.properties != self._raw.properties:
            for name, index in (("the id", _MESSAGE_ID), ("the session", _GROUP_ID)):
                if _field(before, index) != _field(message, index):
                    return name
        if raw.message_annotations != self._raw.message_annotations and (
            message.annotation(PARTITION_KEY) != before.annotation(PARTITION_KEY)
        ):
            return "the partition key"
        if raw.application_properties != self._raw.application_properties and _own(raw) != _own(self._raw):
            return f"a property that begins with {OWN}"
        return None


def _all_of(raw: Sections) -> tuple[bytes, ...]:
    return (
        *(raw.header, raw.message_annotations, raw.properties),
        *(raw.application_properties, raw.body, raw.footer),
    )


def _field(message: Message, index: int) -> bytes:
    fields = message.property_fields()
    return fields[index] if len(fields) > index else _NULL


def _own(raw: Sections) -> list[bytes]:
    section = raw.application_properties
    if _OWN not in section.lower():
        return []
    return sorted(
        section[start:stop]
        for key, start, _, stop in map_section.entries(section)
        if key is not None and key.lower().startswith(OWN)
    )


def _distinct(messages: Sequence[Message]) -> Sequence[Message]:
    """Return *messages*, of which one that stands there twice is copied: what follows in the line changes them."""
    seen: set[int] = set()
    distinct = []
    for each in messages:
        distinct.append(each.copy() if id(each) in seen else each)
        seen.add(id(each))
    return distinct


def _imported(name: str, folder: Path | None) -> ModuleType:
    """Return the module of this name, imported; ValueError where it cannot be."""
    try:
        if folder is not None and PathFinder.find_spec(name.partition(".")[0], [str(folder)]) is not None:
            return importlib.import_module(f"{_package_of(folder)}.{name}")
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # a module may raise anything when it is run
        raise ValueError(f"module {name} cannot be imported: {type(error).__name__}: {error}") from error


def _package_of(folder: Path) -> str:
    """
    Return the name of the package that *folder* is, so that its modules and those of the app have names of their own.

    A module of the folder imports one beside it relatively: `from . import rates`.
    """
    path = str(folder.resolve())
    name = f"busway_configuration_{hashlib.sha256(path.encode()).hexdigest()[:12]}"
    if name not in sys.modules:
        package = ModuleType(name)
        package.__path__ = [path]
        sys.modules[name] = package
    return name
