"""
What lies between an instance of the app and a site: requests and answers in order, delays, and cuts.

A channel is a connection. What is sent over it arrives in order, after a while; when it is cut, what is under way may
still arrive, and no answer does.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING

from busway_broker import errors
from busway_broker.errors import Refusal
from tests.simulation.event_loop import SeededLoop
from tests.simulation.faults import Effect, Faults, Operation
from tests.simulation.process import Process

if TYPE_CHECKING:
    from tests.simulation.site import Site

_SHORTEST, _LONGEST = 0.001, 0.08
_SLOW = 1.0, 90.0
# A peer that is silent is noticed when the idle timeout has passed.
_UNNOTICED = 240.0
# What a process has written to a connection before it was killed may wait in the network.
_LATE = 0.5, 4.5
_TICK = 1e-6


def entity_of(place: str) -> str:
    """Return the entity that *place* is, or is a partition of."""
    return place.partition("/Partitions/")[0]


class Cut(ConnectionError):
    """The connection is lost."""


_REFUSALS = {
    Effect.BUSY: (errors.SERVER_BUSY, "The request was terminated because the entity is being throttled."),
    Effect.FULL: (errors.RESOURCE_LIMIT_EXCEEDED, "The quota of the entity is exceeded."),
    Effect.INTERNAL: (errors.INTERNAL_ERROR, "The service was unable to process the request; please retry."),
    Effect.SPURIOUS: (errors.MESSAGE_LOCK_LOST, "The lock supplied is invalid."),
}


class Network:
    """Delays and faults, for all channels."""

    def __init__(self, loop: SeededLoop, chance: random.Random, faults: Faults) -> None:
        """Draw delays from *chance*."""
        self.loop = loop
        self.chance = chance
        self.faults = faults
        self.emptied: set[str] = set()
        """What was peeked at, and gave nothing: the service does that once, not for every connection (SR7)."""
        self.arrived: set[tuple[str, str]] = set()
        """What entities have accepted: the entity, as site and path, and the name in its body."""
        self.has_released = False
        """Whether an instance gave back what had come while it did not receive: it comes again after what followed."""
        self.context = Context()
        """That of what happens outside of any instance, and goes on when one is killed."""

    def delay(self) -> float:
        """Return the seconds that one way takes."""
        return _SHORTEST + self.chance.random() ** 4 * _LONGEST

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Do something outside of any instance at a time of the loop."""
        self.loop.call_at(when, act, context=self.context)

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Likewise, after *seconds*."""
        self.at(self.loop.time() + seconds, act)


class Channel:
    """One connection of an instance to a site."""

    def __init__(self, network: Network, owner: Process, site: "Site", where: str) -> None:
        """Open it; *where* names what it is for in the log of faults."""
        self.network = network
        self.owner = owner
        self.site = site
        self.where = where
        self.is_cut = False
        self.most: int | None = None
        """How many messages the answer to the request under way may have."""
        self._out_at = self._in_at = 0.0
        self._pending: dict[asyncio.Future[object], None] = {}
        self._delivers_rest = True
        self._on_cut: list[Callable[[], None]] = []
        self._on_noticed: list[Callable[[], None]] = []
        owner.channels[self] = None

    @property
    def is_waiting(self) -> bool:
        """Whether a request has no answer."""
        return bool(self._pending)

    def when_cut(self, act: Callable[[], None], *, at_service: bool = False) -> None:
        """Call *act* when the connection is lost, or *at_service* when the service notices it."""
        (self._on_noticed if at_service else self._on_cut).append(act)

    def cut(self, *, is_silent: bool = False) -> None:
        """Lose the connection; if *is_silent*, the service notices later."""
        if self.is_cut:
            return
        self.is_cut = True
        self.owner.channels.pop(self, None)
        network = self.network
        self._delivers_rest = network.chance.random() < 0.5
        noticed = network.chance.random() * _UNNOTICED if is_silent else network.delay()
        network.later(noticed, self._notice)
        for future in list(self._pending):
            self._fail(future)
        for act in self._on_cut:
            act()

    def send(self, act: Callable[[], None]) -> None:
        """Do something at the service, after all that was sent before."""
        if self.is_cut:
            return
        self._out_at = max(self.network.loop.time() + self.network.delay(), self._out_at + _TICK)
        self.network.at(self._out_at, lambda: self._arrive(act))

    def answer(self, act: Callable[[], None]) -> None:
        """Do something at the instance, after all that was answered before."""
        if self.is_cut:
            return
        self._in_at = max(self.network.loop.time() + self.network.delay(), self._in_at + _TICK)
        self.network.loop.call_at(self._in_at, self._return, act, context=self.owner.context)

    async def request[T](self, operation: Operation, act: Callable[[], T]) -> T:
        """
        Return what *act* returns at the service, or raise what it raises.

        Raises: Cut without an answer, and Refusal. An answer that is lost never comes.
        """
        if self.is_cut:
            raise Cut(self.where)
        network = self.network
        effect = network.faults.strike(operation, network.loop.time(), self.where)
        future: asyncio.Future[T] = network.loop.create_future()
        self._pending[future] = None  # type: ignore[index] # any future
        self.send(lambda: self._act(effect, act, future))
        try:
            return await future
        finally:
            self._pending.pop(future, None)  # type: ignore[arg-type] # likewise

    def _arrive(self, act: Callable[[], None]) -> None:
        if self.site.is_away:
            self.cut(is_silent=True)
        elif not self.is_cut or self._delivers_rest:
            act()

    def _return(self, act: Callable[[], None]) -> None:
        if not self.is_cut:
            act()

    def _act[T](self, effect: Effect | None, act: Callable[[], T], future: "asyncio.Future[T]") -> None:
        """Act at the service, with the fault if there is one."""
        refusal = _REFUSALS.get(effect) if effect is not None else None
        match effect:
            case Effect.CUT_BEFORE:
                self.cut()
                return
            case Effect.KILL_BEFORE:
                self.owner.kill()
                return
            case Effect.LATE:
                self.owner.kill()
                self.network.later(self.network.chance.uniform(*_LATE), lambda: _unanswered(act))
                return
            case Effect.LOCKS:
                self.site.lose_locks()
            case Effect.SLOW:
                self._in_at = max(self._in_at, self.network.loop.time() + self.network.chance.uniform(*_SLOW))
            case _:
                pass
        self.most = self._most_peeked(effect)
        result: T | None = None
        error: Refusal | None = None
        try:
            if refusal is not None:
                raise Refusal(*refusal)  # noqa: TRY301 - as if the service had
            result = act()
        except Refusal as refused:
            error = refused
        match effect:
            case Effect.CUT_AFTER:
                self.cut()
            case Effect.KILL_AFTER:
                self.owner.kill()
            case Effect.LOST:
                pass
            case _:
                self.answer(lambda: _resolve(future, result, error))

    def _most_peeked(self, effect: Effect | None) -> int | None:
        emptied = self.network.emptied
        if effect is Effect.EMPTY and self.where not in emptied:
            emptied.add(self.where)
            return 0
        emptied.discard(self.where)
        return 1 if effect is Effect.SHORT else None

    def _fail(self, future: "asyncio.Future[object]") -> None:
        def fail() -> None:
            if not future.done():
                future.set_exception(Cut(self.where))

        self.network.loop.call_later(self.network.delay(), fail, context=self.owner.context)

    def _notice(self) -> None:
        for act in self._on_noticed:
            act()


def _unanswered(act: Callable[[], object]) -> None:
    with contextlib.suppress(Refusal):
        act()


def _resolve[T](future: "asyncio.Future[T]", result: T | None, error: Exception | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)  # type: ignore[arg-type] # the result of its action
