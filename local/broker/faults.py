"""
Faults on demand: what goes wrong, with which operations on which entities, and when.

1. A fault strikes operations that match it: from the n-th on, as often as it says, with a probability of its own seed.
2. The first fault that strikes an operation is the only one that does.
3. A fault can be written as plain data (JSON), so that a test in another process can ask for it.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Self

from local.broker import errors
from local.broker.errors import Refusal
from shared.errors import ConfigError, Problem


class Operation(StrEnum):
    """What a client does, or the broker for it: `transfer` is a message or event that goes out to a receiver."""

    AUTHORIZE = "authorize"
    ATTACH = "attach"
    SEND = "send"
    TRANSFER = "transfer"
    SETTLE = "settle"
    MANAGE = "manage"


class Effect(StrEnum):
    """
    What happens to an operation.

    - drop-connection: the connection breaks without a word, before the operation is carried out
    - lose-acknowledgement: the operation is carried out and never answered
    - delay: the operation is carried out; its answer and all that follows on the connection come `delay` seconds late
    - throttle: it is refused with com.microsoft:server-busy
    - refuse: it is refused with the fault's own condition
    - expire-locks: all locks of the entity end just before the operation
    - disable: it is refused as on an entity that is disabled
    - fill: it is refused as on an entity that has reached its size
    """

    DROP_CONNECTION = "drop-connection"
    LOSE_ACKNOWLEDGEMENT = "lose-acknowledgement"
    DELAY = "delay"
    THROTTLE = "throttle"
    REFUSE = "refuse"
    EXPIRE_LOCKS = "expire-locks"
    DISABLE = "disable"
    FILL = "fill"


_ALL = frozenset(Operation)
_WITHOUT_TOKENS = _ALL - {Operation.AUTHORIZE}
_POSSIBLE: Mapping[Effect, frozenset[Operation]] = {
    Effect.DROP_CONNECTION: _ALL,
    # A transfer that goes out is the peer's to acknowledge.
    Effect.LOSE_ACKNOWLEDGEMENT: _ALL - {Operation.TRANSFER},
    Effect.DELAY: _ALL,
    Effect.THROTTLE: _ALL,
    Effect.REFUSE: _ALL,
    Effect.EXPIRE_LOCKS: frozenset((Operation.SETTLE, Operation.MANAGE)),
    # What has been received from an entity can still be settled when it is disabled.
    Effect.DISABLE: _WITHOUT_TOKENS - {Operation.SETTLE},
    Effect.FILL: frozenset((Operation.SEND,)),
}
_REFUSALS = {
    Effect.THROTTLE: Refusal(errors.SERVER_BUSY, "the service is busy, expected the request to be sent again later"),
    Effect.DISABLE: Refusal(errors.ENTITY_DISABLED, "the messaging entity is disabled"),
    Effect.FILL: Refusal(errors.RESOURCE_LIMIT_EXCEEDED, "the messaging entity has reached its maximum size"),
}
_BREAKS_OR_REFUSES = frozenset((Effect.DROP_CONNECTION, Effect.REFUSE, *_REFUSALS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """
    One fault.

    Shape:  entity is a path with the wildcards of file names, not case-sensitive: `orders`, `*/$deadletterqueue`,
            `hub/*`; no operations means all that the effect can strike, save `authorize` (putting a token).
            It strikes from the at-th operation that matches, *times* operations at most; takes_effect lets a broken or
            refused operation be carried out all the same, so that the client is wrong about it.
    Units:  delay in seconds of the broker's clock.
    Raises: ConfigError for what contradicts itself.
    """

    effect: Effect
    entity: str = "*"
    operations: frozenset[Operation] = frozenset()
    at: int = 1
    times: int | None = None
    probability: float = 1.0
    seed: int = 0
    delay: float = 0.0
    takes_effect: bool = False
    condition: str = errors.INTERNAL_ERROR
    description: str = "a fault that was asked for"

    def __post_init__(self) -> None:
        """Check that the parts go together."""
        possible = _POSSIBLE[self.effect]
        problems = [
            Problem("operations", f"{operation} cannot be struck by {self.effect}", f"expected {_listed(possible)}")
            for operation in sorted(self.operations - possible)
        ]
        if self.at < 1:
            problems.append(Problem("at", f"is {self.at}", "operations are counted from 1"))
        if self.times is not None and self.times < 1:
            problems.append(Problem("times", f"is {self.times}", "expected at least 1, or nothing for no end"))
        if not 0 < self.probability <= 1:
            problems.append(Problem("probability", f"is {self.probability}", "expected more than 0, up to 1"))
        if (self.delay > 0) != (self.effect is Effect.DELAY):
            problems.append(Problem("delay", f"is {self.delay} seconds", "a delay, and nothing else, has a length"))
        if self.takes_effect and self.effect not in _BREAKS_OR_REFUSES:
            problems.append(Problem("takes_effect", f"has no meaning for {self.effect}"))
        if problems:
            raise ConfigError(problems)

    @property
    def struck_operations(self) -> frozenset[Operation]:
        """Return the operations that it strikes."""
        return self.operations or _POSSIBLE[self.effect] - {Operation.AUTHORIZE}

    @property
    def refusal(self) -> Refusal | None:
        """Return what the peer is told, None if the effect is no refusal."""
        if self.effect is Effect.REFUSE:
            return Refusal(self.condition, self.description)
        return _REFUSALS.get(self.effect)

    @classmethod
    def read(cls, data: Mapping[str, object]) -> Self:
        """Return the fault in plain data; ConfigError names every key that is not known or has the wrong type."""
        problems: list[Problem] = []
        values: dict[str, object] = {}
        for key, value in data.items():
            try:
                values[key] = _read(key, value)
            except (KeyError, TypeError, ValueError) as error:
                problems.append(Problem(key, _REASONS.get(type(error), str(error)), _EXPECTED.get(key, _KNOWN)))
        if "effect" not in data:
            problems.append(Problem("effect", "is missing", _EXPECTED["effect"]))
        if problems:
            raise ConfigError(problems)
        return cls(**values)  # type: ignore[arg-type] # _read has made each value what its field holds

    def plain(self) -> dict[str, object]:
        """Return the fault as plain data, defaults left out."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        values["operations"] = sorted(self.operations)
        defaults = {each.name: each.default for each in fields(self)} | {"operations": []}
        return {name: value for name, value in values.items() if value != defaults[name]}


class _Armed:
    """A fault that is set, and how often it was asked and has struck."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.seen = 0
        self.struck = 0
        self._pattern = fault.entity.lower()
        self._operations = fault.struck_operations
        self._random = random.Random(fault.seed)

    @property
    def is_spent(self) -> bool:
        """Return whether it strikes no more."""
        return self.fault.times is not None and self.struck >= self.fault.times

    def strikes(self, operation: Operation, path: str) -> bool:
        """Return whether it strikes an operation on the entity at a path in lower case."""
        fault = self.fault
        if self.is_spent or operation not in self._operations or not fnmatchcase(path, self._pattern):
            return False
        self.seen += 1
        if self.seen < fault.at or (fault.probability < 1 and self._random.random() >= fault.probability):
            return False
        self.struck += 1
        return True


class Faults:
    """The faults of a namespace; `is_set` is all that an operation looks at while there are none."""

    def __init__(self) -> None:
        self.is_set = False
        self._armed: list[_Armed] = []

    def add(self, fault: Fault) -> None:
        """Set a fault, after those that are set."""
        self._armed.append(_Armed(fault))
        self.is_set = True

    def clear(self) -> None:
        """Let everything go right again."""
        self._armed.clear()
        self.is_set = False

    def strike(self, operation: Operation, path: str) -> Fault | None:
        """Return the fault that strikes an operation, None if it goes well; path as `path_of` returns it."""
        for armed in self._armed:
            if armed.strikes(operation, path):
                self.is_set = not all(each.is_spent for each in self._armed)
                return armed.fault
        return None

    def plain(self) -> list[dict[str, object]]:
        """Return the faults as plain data in their order, with the operations they have `seen` and `struck`."""
        return [armed.fault.plain() | {"seen": armed.seen, "struck": armed.struck} for armed in self._armed]


def _read(key: str, value: object) -> object:
    match key, value:
        case "effect", str():
            return Effect(value)
        case "operations", list():
            return frozenset(map(Operation, value))
        case (("entity" | "condition" | "description"), str()):
            return value
        case "takes_effect", bool():
            return value
        case (("at" | "times" | "seed" | "probability" | "delay"), bool()):
            raise TypeError
        case (("at" | "times" | "seed"), int()):
            return value
        case "times", None:
            return None
        case (("probability" | "delay"), (int() | float())):
            return float(value)
        case _ if key not in _EXPECTED:
            raise KeyError(key)
    raise TypeError


def _listed(names: frozenset[Operation] | type[StrEnum]) -> str:
    return ", ".join(sorted(names))


_EXPECTED = {
    "effect": f"expected one of {_listed(Effect)}",
    "operations": f"expected a list of {_listed(Operation)}",
    "entity": "expected text",
    "condition": "expected text",
    "description": "expected text",
    "takes_effect": "expected true or false",
    "at": "expected a whole number",
    "times": "expected a whole number",
    "seed": "expected a whole number",
    "probability": "expected a number",
    "delay": "expected a number of seconds",
}
_KNOWN = f"expected one of {', '.join(_EXPECTED)}"
_REASONS: dict[type[Exception], str] = {KeyError: "is not known here", TypeError: "has the wrong type"}
