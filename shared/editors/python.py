"""The python editor: a function of your own; `shared.editors.function_api` describes its API."""

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
from typing import Annotated, NamedTuple

from pydantic import Field, PlainValidator, ValidationInfo, WithJsonSchema

from shared.amqp import map_section
from shared.amqp.sections import Sections
from shared.editors.options import FOLDER, Stateless, Step, TaskFacts
from shared.editors.ordering import OWN, PARTITION_KEY, part_id
from shared.editors.own_thread import OwnThread
from shared.errors import MessageRejected
from shared.message.message import Message
from shared.protocols import EditedTogether, Withheld

FAILED = "EditorFailed"
_WITHHELD = Withheld("withheld")
# A function may wait, and the clock runs on while other processes compute.
_MORE_TIME = 10

_LOGGER = logging.getLogger("busway.editors")
_NAME = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"
_PATTERN = re.compile(_NAME)
_MESSAGE_ID = 0
_GROUP_ID = 10
_NULL = b"\x40"
_OWN = OWN.encode()


def load_function(name: object, info: ValidationInfo) -> "OwnFunction":
    """Return the function `module:name` of the configuration folder or the app; raises ValueError if it is missing."""
    if not isinstance(name, str) or not _PATTERN.fullmatch(name):
        raise ValueError("expected a function as package.module:function")
    module_name, _, attribute = name.partition(":")
    folder = (info.context or {}).get(FOLDER)
    module = _import(module_name, None if folder is None else Path(folder))
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


class OwnFunction(NamedTuple):
    """A user's function, and its name in the task file."""

    name: str
    call: Callable[[Message], object]


class PythonStep(Step):
    """Calls a function of your own for each message; if it fails, the message is rejected."""

    function: Annotated[
        OwnFunction, PlainValidator(load_function), WithJsonSchema({"type": "string", "pattern": _NAME})
    ] = Field(alias="python")
    """Function as `package.module:function`; the module is in the folder of connections.yaml, or in the app."""

    def editor(self, task: TaskFacts, /) -> "Python":
        """Return the editor with these options."""
        return Python(self.function, _MORE_TIME * task.edit_seconds)


class Python(Stateless):
    """
    Calls a user's function for each message and checks the result.

    Id, session, partition key, arrival and Busway's own properties must stay. If the function raises an error, the
    message is rejected. The text of the error is not logged, because it may quote the body.
    """

    def __init__(self, function: OwnFunction, seconds: float) -> None:
        """Call *function* in a thread of its own; a call may take *seconds* by the clock."""
        self.name = f"python {function.name}"
        self._call = function.call
        self._thread = OwnThread(self.name, seconds)

    async def edit_batch(self, messages: Sequence[Message], *, timeout_seconds: float) -> Sequence[EditedTogether]:  # noqa: ARG002 - each call has a limit
        """Return the answer for each message; the messages stay unchanged."""
        results = await self._thread.map(self.edit, [message.copy() for message in messages])
        return [_answer(result) for result in results]

    def edit(self, message: Message) -> Sequence[Message] | Withheld:
        """Return what the function returns, or raise MessageRejected."""
        kept = _Kept(message)
        try:
            found = self._call(message)
        except MessageRejected as error:
            raise MessageRejected(str(error.reason), str(error.description)) from error
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any error rejects the message
            _LOGGER.debug("%s failed at\n%s", self.name, "".join(traceback.format_tb(error.__traceback__)))
            # Without a cause, whose text may quote the body.
            raise MessageRejected(FAILED, f"failed with {type(error).__name__}") from None
        if found is None:
            return _WITHHELD
        messages = (found,) if isinstance(found, Message) else found
        if not isinstance(messages, (list, tuple)) or not all(isinstance(message, Message) for message in messages):
            problem = f"returned a {type(found).__name__}, expected a message, a list of messages or None"
            raise MessageRejected(FAILED, problem)
        if not messages:
            return _WITHHELD
        for each in messages:
            changed = kept.changed(each)
            if changed is not None:
                raise MessageRejected(FAILED, f"changed {changed}, which has to stay as it was")
        messages = _distinct(messages)
        if len(messages) > 1:
            # A target that detects duplicates would otherwise keep the first of them only.
            for number, part in enumerate(messages):
                part.message_id = part_id(part, number)
        return messages


def _answer(result: Sequence[Message] | Withheld | Exception) -> EditedTogether:
    if isinstance(result, Exception) and not isinstance(result, MessageRejected):
        raise result
    return result


class _Kept:
    """The parts of a message that a function must not change."""

    def __init__(self, message: Message) -> None:
        self._arrival = message.arrival
        self._raw = copy.copy(message.sections)

    def changed(self, message: Message) -> str | None:
        """Return what *message* has changed, None for nothing."""
        raw = message.sections
        if message.arrival is not self._arrival and message.arrival != self._arrival:
            return "the arrival"
        if not isinstance(raw, Sections) or not all(isinstance(each, bytes) for each in _all_of(raw)):
            return "the type of a section"
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
    return (*(raw.header, raw.message_annotations, raw.properties), *(raw.application_properties, raw.body, raw.footer))


def _field(message: Message, index: int) -> bytes:
    fields = message.property_fields()
    return fields[index] if len(fields) > index else _NULL


def _own(raw: Sections) -> list[bytes]:
    section = raw.application_properties
    if _OWN not in section.lower():
        return []
    entries = ((key or "", section[start:stop]) for key, start, _, stop in map_section.entries(section))
    return sorted(entry for key, entry in entries if key.lower().startswith(OWN))


def _distinct(messages: Sequence[Message]) -> Sequence[Message]:
    """Return *messages*, with a copy for each repeated one, because later editors change them in place."""
    seen: set[int] = set()
    distinct = []
    for message in messages:
        distinct.append(message.copy() if id(message) in seen else message)
        seen.add(id(message))
    return distinct


def _import(name: str, folder: Path | None) -> ModuleType:
    """Import and return a module; raises ValueError if that fails."""
    try:
        if folder is not None and PathFinder.find_spec(name.partition(".")[0], [str(folder)]) is not None:
            return importlib.import_module(f"{_package_of(folder)}.{name}")
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:  # a module may raise any error
        raise ValueError(f"module {name} cannot be imported: {type(error).__name__}: {error}") from error


def _package_of(folder: Path) -> str:
    """
    Return the name of a package for *folder*, so that its modules cannot have the same names as those of the app.

    A module of the folder imports another one relatively: `from . import rates`.
    """
    path = str(folder.resolve())
    name = f"busway_configuration_{hashlib.sha256(path.encode()).hexdigest()[:12]}"
    if name not in sys.modules:
        package = ModuleType(name)
        package.__path__ = [path]
        sys.modules[name] = package
    return name
