"""
Faults on demand: which operations on which entities fail, how, and when.

1. A fault strikes matching operations: from the n-th on, each or every n-th, a number of times, with a probability
   and a seed of its own.
2. The first fault that strikes an operation is the only one.
3. A fault has a form as plain data (JSON), so that a test in another process can set it.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from fnmatch import fnmatchcase
from types import UnionType
from typing import Any, Self

from busway_broker import errors
from busway_broker.errors import Refusal
from shared.errors import ConfigError, Problem


class Operation(StrEnum):
    """An operation of a client; `transfer` is the delivery of a message or event, `drain` the end of unused credit."""

    AUTHORIZE = "authorize"
    ATTACH = "attach"
    SEND = "send"
    TRANSFER = "transfer"
    SETTLE = "settle"
    MANAGE = "manage"
    DRAIN = "drain"


class Effect(StrEnum):
    """
    What happens to an operation.

    - drop-connection: the connection breaks before the operation is done
    - lose-acknowledgement: the operation is done and never answered
    - delay: the operation is done; its answer and everything after it on the connection is `delay` seconds late
    - throttle: the operation is refused with com.microsoft:server-busy
    - refuse: the operation is refused with the fault's own condition
    - close-link: the link that a message is sent on, or would be delivered on, is closed with the fault's own
      condition, an empty one for no error; a request is refused
    - expire-locks: all locks of the entity expire just before the operation
    - disable: the operation is refused as on a disabled entity
    - fill: the link that a message is sent on ends as at a full entity
    - empty-peek: a peek is answered as if there were no messages
    - short-peek: a peek is answered with the first message only
    """

    DROP_CONNECTION = "drop-connection"
    LOSE_ACKNOWLEDGEMENT = "lose-acknowledgement"
    DELAY = "delay"
    THROTTLE = "throttle"
    REFUSE = "refuse"
    CLOSE_LINK = "close-link"
    EXPIRE_LOCKS = "expire-locks"
    DISABLE = "disable"
    FILL = "fill"
    EMPTY_PEEK = "empty-peek"
    SHORT_PEEK = "short-peek"


_LONGEST_DELAY = 7 * 86_400.0
_ALL = frozenset(Operation) - {Operation.DRAIN}
_ON_REQUEST = frozenset((Operation.AUTHORIZE, Operation.DRAIN))
"""What a fault without operations does not strike."""
_WITHOUT_TOKENS = _ALL - {Operation.AUTHORIZE}
_POSSIBLE: Mapping[Effect, frozenset[Operation]] = {
    Effect.DROP_CONNECTION: _ALL | {Operation.DRAIN},
    # A delivery is acknowledged by the client, not by the broker.
    Effect.LOSE_ACKNOWLEDGEMENT: _ALL - {Operation.TRANSFER} | {Operation.DRAIN},
    Effect.DELAY: _ALL | {Operation.DRAIN},
    Effect.THROTTLE: _ALL,
    Effect.REFUSE: _ALL,
    Effect.CLOSE_LINK: frozenset((Operation.SEND, Operation.TRANSFER)),
    Effect.EXPIRE_LOCKS: frozenset((Operation.SETTLE, Operation.MANAGE)),
    # Received messages can still be settled while the entity is disabled.
    Effect.DISABLE: _WITHOUT_TOKENS - {Operation.SETTLE},
    Effect.FILL: frozenset((Operation.SEND,)),
    Effect.EMPTY_PEEK: frozenset((Operation.MANAGE,)),
    Effect.SHORT_PEEK: frozenset((Operation.MANAGE,)),
}
PEEKED: Mapping[Effect, int] = {Effect.EMPTY_PEEK: 0, Effect.SHORT_PEEK: 1}
"""How many messages such a peek is answered with."""
_PEEK = "peek-message"
_REFUSALS = {
    Effect.THROTTLE: Refusal(
        errors.SERVER_BUSY,
        "The request was terminated because the namespace is being throttled. Error code : 50009. "
        "Please wait 2 seconds and try again.",
    ),
    Effect.DISABLE: Refusal(errors.ENTITY_DISABLED, "the messaging entity is disabled"),
    Effect.FILL: Refusal(errors.RESOURCE_LIMIT_EXCEEDED, "the messaging entity has reached its maximum size"),
}
# azure-sdk-for-java 11003
_BUSY_HUB = Refusal(
    errors.SERVER_BUSY,
    "The request was terminated because the entity is being throttled. Error code : 50002. "
    "Please wait 4 seconds and try again.",
)
_BREAKS_OR_REFUSES = frozenset((Effect.DROP_CONNECTION, Effect.REFUSE, *_REFUSALS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """
    One fault.

    Shape:  entity is a path with the wildcards of file names, not case-sensitive: `orders`, `*/$deadletterqueue`,
            `hub/*`; without operations, it strikes all that the effect allows, except `authorize` (putting a token).
            It strikes from the at-th matching operation on, *times* times at most. With takes_effect the operation
            is done although the client sees it fail. With *containing* it strikes only the sending of messages and
            batches whose bytes contain this text, with *request* only this operation of `$management` nodes, such as
            `renew-lock` or `update-disposition`. With *every* it strikes one of that number of matching operations.
    Units:  delay in seconds of the broker's clock.
    Raises: ConfigError for a contradiction.
    """

    effect: Effect
    entity: str = "*"
    operations: frozenset[Operation] = frozenset()
    containing: str = ""
    request: str = ""
    at: int = 1
    every: int = 1
    times: int | None = None
    probability: float = 1.0
    seed: int = 0
    delay: float = 0.0
    takes_effect: bool = False
    condition: str = errors.INTERNAL_ERROR
    description: str = "a fault set by a test"

    def __post_init__(self) -> None:
        """Check that the fields are consistent."""
        possible = _POSSIBLE[self.effect]
        problems = [
            Problem("operations", f"{self.effect} cannot strike {operation}", f"expected {_listed(possible)}")
            for operation in sorted(self.operations - possible)
        ]
        if self.request and self.operations != {Operation.MANAGE}:
            problems.append(Problem("request", "names an operation", f"expected operations to be {Operation.MANAGE}"))
        problems += [
            Problem(name, f"is {number}", "operations are counted from 1")
            for name, number in (("at", self.at), ("every", self.every))
            if number < 1
        ]
        if self.times is not None and self.times < 1:
            problems.append(Problem("times", f"is {self.times}", "expected at least 1, or null for no limit"))
        if not 0 < self.probability <= 1:
            problems.append(Problem("probability", f"is {self.probability}", "expected more than 0, up to 1"))
        if not (0 < self.delay <= _LONGEST_DELAY if self.effect is Effect.DELAY else self.delay == 0):
            expected = f"expected more than 0, up to {_LONGEST_DELAY:.0f}, for the effect delay, 0 for others"
            problems.append(Problem("delay", f"is {self.delay} seconds", expected))
        if not self.condition and self.effect is not Effect.CLOSE_LINK:
            problems.append(Problem("condition", "is empty", "only close-link can do without an error"))
        if self.takes_effect and self.effect not in _BREAKS_OR_REFUSES:
            problems.append(Problem("takes_effect", f"has no meaning for {self.effect}"))
        if problems:
            raise ConfigError(problems)

    def refusal(self, *, is_hub: bool = False) -> Refusal | None:
        """Return the refusal that is answered, by a hub or another entity; None if the effect is not a refusal."""
        if is_hub and self.effect is Effect.THROTTLE:
            return _BUSY_HUB
        if self.effect is Effect.CLOSE_LINK and not self.condition:
            return None
        if self.effect in (Effect.REFUSE, Effect.CLOSE_LINK):
            return Refusal(self.condition, self.description)
        return _REFUSALS.get(self.effect)

    @classmethod
    def read(cls, data: Mapping[str, object]) -> Self:
        """Return the fault in plain data; ConfigError lists every key that is unknown or has the wrong type."""
        problems: list[Problem] = []
        values: dict[str, object] = {}
        for key, value in data.items():
            try:
                values[key] = _read(key, value)
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                problems.append(Problem(key, _REASONS.get(type(error), str(error)), _EXPECTED.get(key, _KNOWN)))
        if "effect" not in data:
            problems.append(Problem("effect", "is missing", _EXPECTED["effect"]))
        if problems:
            raise ConfigError(problems)
        return cls(**values)  # type: ignore[arg-type] # _read has checked the type of each value

    def plain(self) -> dict[str, object]:
        """Return the fault as plain data, without defaults."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["operations"] = sorted(self.operations)
        defaults = {field.name: field.default for field in fields(self)} | {"operations": []}
        return {name: value for name, value in values.items() if value != defaults[name]}


class _Armed:
    """A fault that is set, with the numbers of operations it has seen and struck."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.seen = 0
        self.struck = 0
        self._pattern = fault.entity.lower()
        self._operations = fault.operations or _POSSIBLE[fault.effect] - _ON_REQUEST
        self._containing = fault.containing.encode()
        self._random = random.Random(fault.seed)

    @property
    def is_spent(self) -> bool:
        """Return whether it no longer strikes."""
        return self.fault.times is not None and self.struck >= self.fault.times

    def strikes(self, operation: Operation, path: str, message: bytes, request: str) -> bool:
        """Return whether it strikes an operation, with its *message*, on the entity at a path in lower case."""
        fault = self.fault
        if self.is_spent or operation not in self._operations or not fnmatchcase(path, self._pattern):
            return False
        wanted = _PEEK if fault.effect in PEEKED else fault.request
        if self._containing not in message or (wanted and wanted != request):
            return False
        self.seen += 1
        if self.seen < fault.at or (self.seen - fault.at) % fault.every:
            return False
        if fault.probability < 1 and self._random.random() >= fault.probability:
            return False
        self.struck += 1
        return True


class Faults:
    """The faults of a namespace; without any, an operation only checks `is_set`."""

    def __init__(self) -> None:
        self.is_set = False
        self._armed: list[_Armed] = []

    def add(self, fault: Fault) -> None:
        """Add a fault after the existing ones."""
        self._armed.append(_Armed(fault))
        self.is_set = True

    def clear(self) -> None:
        """Remove all faults."""
        self._armed.clear()
        self.is_set = False

    def strike(self, operation: Operation, path: str, message: bytes = b"", request: str = "") -> Fault | None:
        """
        Return the fault that strikes an operation, or None.

        *path* is as `path_of` returns it; *request* names the operation of a `$management` node.
        """
        for armed in self._armed:
            if armed.strikes(operation, path, message, request):
                self.is_set = not all(each.is_spent for each in self._armed)
                return armed.fault
        return None

    def plain(self) -> list[dict[str, object]]:
        """Return the faults as plain data, with the numbers of operations they have `seen` and `struck`."""
        return [armed.fault.plain() | {"seen": armed.seen, "struck": armed.struck} for armed in self._armed]


def _read(key: str, value: object) -> object:
    kinds, convert, _ = _FIELDS[key]
    if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
        raise TypeError
    return convert(value)


def _as_it_is(value: object) -> object:
    return value


def _listed(names: frozenset[Operation] | type[StrEnum]) -> str:
    return ", ".join(sorted(names))


_TEXT = (str, _as_it_is, "expected text")
_WHOLE = (int, _as_it_is, "expected a whole number")
_FIELDS: Mapping[str, tuple[type | UnionType, Callable[[Any], object], str]] = {
    "effect": (str, Effect, f"expected one of {_listed(Effect)}"),
    "operations": (
        list,
        lambda names: frozenset(map(Operation, names)),
        f"expected a list of {_listed(Operation)}",
    ),
    "entity": _TEXT,
    "containing": _TEXT,
    "request": _TEXT,
    "condition": _TEXT,
    "description": _TEXT,
    "takes_effect": (bool, _as_it_is, "expected true or false"),
    "at": _WHOLE,
    "every": _WHOLE,
    "times": (int | None, _as_it_is, "expected a whole number"),
    "seed": _WHOLE,
    "probability": (int | float, float, "expected a number"),
    "delay": (int | float, float, "expected a number of seconds"),
}
"""The type of each key of plain data, what makes a value of it, and what a problem says."""
_EXPECTED = {name: expected for name, (_, _, expected) in _FIELDS.items()}
_KNOWN = f"expected one of {', '.join(_EXPECTED)}"
_REASONS: dict[type[Exception], str] = {KeyError: "unknown key", TypeError: "has the wrong type"}
