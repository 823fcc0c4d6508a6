"""The faults of a history: which happen, and when, drawn from its seed."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum

LONGEST_SECONDS = 1_800.0
"""For which something is away."""


class Operation(StrEnum):
    """What an instance of the app does over the network."""

    ATTACH = "attach"
    SEND = "send"
    SETTLE = "settle"
    RENEW = "renew"
    RECORD = "record"
    READ = "read"
    PEEK = "peek"
    MANAGE = "manage"


class Effect(StrEnum):
    """What goes wrong with one request."""

    CUT_BEFORE = "cut before the service has acted"
    CUT_AFTER = "cut after the service has acted"
    LOST = "answer lost"
    SLOW = "slow"
    KILL_BEFORE = "instance killed before the service has acted"
    KILL_AFTER = "instance killed after the service has acted"
    BUSY = "throttled"
    FULL = "target full"
    INTERNAL = "internal error"
    LOCKS = "locks lost"
    SPURIOUS = "renewal refused"
    REFUSED = "journal refused"
    AWAY = "journal unreachable from then on"
    TWICE = "written, and answered as if not"
    KILL_WITHIN = "killed in the middle of a line"
    LATE = "instance killed, and what it has sent arrives seconds later"
    CUT_OFF = "cut off in the middle of a line"
    EMPTY = "answered with nothing"
    SHORT = "answered with few"


_NETWORK = (Effect.CUT_BEFORE, Effect.CUT_AFTER, Effect.LOST, Effect.SLOW, Effect.KILL_BEFORE, Effect.KILL_AFTER)
_STORAGE = (Effect.REFUSED, Effect.TWICE, Effect.SLOW, Effect.KILL_BEFORE, Effect.KILL_AFTER)

EFFECTS: dict[Operation, Sequence[Effect]] = {
    Operation.ATTACH: (Effect.CUT_BEFORE, Effect.LOST, Effect.SLOW, Effect.KILL_AFTER, Effect.BUSY),
    Operation.SEND: (*_NETWORK, Effect.BUSY, Effect.FULL, Effect.INTERNAL),
    Operation.SETTLE: (*_NETWORK, Effect.LOCKS),
    Operation.RENEW: (*_NETWORK, Effect.SPURIOUS, Effect.LOCKS),
    Operation.PEEK: (*_NETWORK, Effect.BUSY, Effect.INTERNAL, Effect.EMPTY, Effect.SHORT),
    Operation.MANAGE: (*_NETWORK, Effect.BUSY, Effect.INTERNAL),
    Operation.RECORD: (*_STORAGE, Effect.AWAY),
    Operation.READ: (Effect.REFUSED, Effect.SLOW, Effect.KILL_BEFORE),
}

RESEND_EFFECTS: Mapping[Operation, Sequence[Effect]] = EFFECTS | {
    Operation.SEND: (*EFFECTS[Operation.SEND], Effect.LATE, Effect.LATE, Effect.LATE),
    Operation.RECORD: (*_STORAGE, Effect.CUT_OFF, Effect.KILL_WITHIN),
}


class Event(StrEnum):
    """What happens to the sites and the app, whatever they are doing."""

    OUTAGE = "site unreachable"
    DISABLE = "target disabled"
    DELETE = "target deleted and created again"
    LOCKS = "locks lost"
    SESSIONS = "sessions detached"
    KILL = "instance killed"
    DRAIN = "instance drained"
    STOP = "instance stopped"
    SCALE = "scaled out"
    STEAL = "partition stolen"
    PAUSE = "task paused"
    SLOW_EDITOR = "slow editor"
    JOURNAL = "journal unreachable"


_FEW_OPERATIONS, _MORE_OFTEN, _MOST_RATE = 0.3, 4.0, 0.5
_FEW_EVENTS = 2


class Faults:
    """
    Draws the faults of one history; those beyond the first *most* do not happen, the others stay as they are.

    In half of the histories only some operations go wrong, more often, and in half only some events happen: two faults
    that are rarely together where everything goes wrong are often together there ("Swarm Testing", Groce et al., 2012).
    """

    def __init__(
        self,
        seed: int,
        rate: float,
        most: int | None = None,
        effects: Mapping[Operation, Sequence[Effect]] = EFFECTS,
    ) -> None:
        """Let a request go wrong with the probability *rate*, in the ways that *effects* has for it."""
        self._effects = effects
        self._chance = random.Random(seed)
        self._rate = rate
        self._most = most
        chance = self._chance
        is_even = chance.random() < 0.5
        self._operations = {each for each in Operation if is_even or chance.random() < _FEW_OPERATIONS}
        self._factor = 1.0 if is_even else _MORE_OFTEN
        self.events = [*Event] if chance.random() < 0.5 else chance.sample([*Event], _FEW_EVENTS)
        """What may happen, whatever the app does."""
        self.drawn = 0
        self.injected: Counter[str] = Counter()
        self.log: list[tuple[float, str]] = []

    @property
    def chance(self) -> random.Random:
        """The source of what is drawn about faults."""
        return self._chance

    def strike(self, operation: Operation, now: float, where: str) -> Effect | None:
        """Return what goes wrong with a request."""
        rate = min(self._rate * self._factor, _MOST_RATE)
        if self._chance.random() >= rate or operation not in self._operations:
            return None
        effect = self._chance.choice(self._effects[operation])
        return effect if self.happens(f"{effect} ({operation})", now, where) else None

    def happens(self, what: str, now: float, where: str) -> bool:
        """Count a fault; return whether it happens."""
        self.drawn += 1
        if self._most is not None and self.drawn > self._most:
            return False
        self.injected[what] += 1
        self.log.append((now, f"{where}: {what}"))
        return True

    def begin(self, rate: float, effects: Mapping[Operation, Sequence[Effect]]) -> None:
        """Let requests go wrong again."""
        self._rate, self._effects = rate, effects

    def end(self) -> None:
        """Let nothing go wrong any more."""
        self._rate = 0.0
