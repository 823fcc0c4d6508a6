"""A listener at several relays at once, which stays reachable if one of them fails (article on outages)."""

import asyncio
import logging
import random
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, NamedTuple, Self

from busway_clients.errors import RelayError, RelayFailed, WrongUse
from busway_clients.relay.accepting import Accepting, Decide
from busway_clients.relay.clock import Clock, SystemClock, ended, is_done_within
from busway_clients.relay.connection import RelayConnection
from busway_clients.relay.control import ControlChannel
from busway_clients.relay.endpoint import RelayEndpoint
from busway_clients.relay.opening import Opening

_LOGGER = logging.getLogger("busway_clients.relay")
_PAUSES = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
# After a channel has lasted this long, the next attempt starts without a pause again.
_STEADY = 60.0
_GOING_AWAY = 1001
_DRAIN = timedelta(seconds=30)
# How long opening waits for the other endpoints once one listens.
_OTHERS = 2.0
MAX_MESSAGE_BYTES = 16 * 1024 * 1024


class Listening(NamedTuple):
    """Whether this listener is registered at an endpoint, and if not, the error."""

    is_on: bool
    error: RelayError | None = None


class RelayListener:
    """
    Accepts connections from one or more endpoints; iterate over it to get them, in one task or several.

    Each endpoint is independent: if its control channel ends, it is opened again at once, then after 1, 2, 5, 10 and 30
    seconds, until the listener is closed. Tokens are renewed before they expire.
    """

    def __init__(
        self,
        endpoints: Mapping[str, RelayEndpoint],
        *,
        decide: Decide | None = None,
        protocols: Sequence[str] = (),
        waiting: int = 100,
        keep_alive: timedelta = timedelta(seconds=30),
        patience: timedelta = timedelta(seconds=30),
        max_message_bytes: int = MAX_MESSAGE_BYTES,
        clock: Clock | None = None,
        jitter: random.Random | None = None,
    ) -> None:
        """
        Listen at *endpoints*, by any names.

        *decide* gets each offer and returns a Rejection, or None to accept. *protocols* are the supported subprotocols;
        a sender that requests only others is rejected. While the application has *waiting* connections to take, further
        ones are rejected with 503, so that their senders try another endpoint. After *keep_alive* without a frame a
        connection is pinged; *patience* is the timeout for each answer of a relay.
        """
        if not endpoints:
            raise WrongUse("endpoints of a listener: got none, expected one or more")
        places = [endpoint.place.lower() for endpoint in endpoints.values()]
        if len({*places}) < len(places):
            raise WrongUse(f"the endpoints of a listener: are {', '.join(places)}, expected different ones")
        self._endpoints = dict(endpoints)
        self._clock = clock or SystemClock()
        self._silence, self._patience = keep_alive.total_seconds(), patience.total_seconds()
        self._opening = Opening(self._clock, max_message_bytes)
        self._accepting = Accepting(
            self._opening,
            self._clock,
            decide=decide,
            protocols=tuple(protocols),
            waiting=waiting,
            silence=self._silence,
            patience=self._patience,
        )
        self._jitter = jitter or random.Random()
        self._states = dict.fromkeys(endpoints, Listening(False))
        self._keeping: list[asyncio.Task[None]] = []

    @property
    def state(self) -> Mapping[str, Listening]:
        """Return the current state of each endpoint."""
        return dict(self._states)

    @property
    def open_connections(self) -> int:
        """Return the number of accepted connections that have not ended, taken by the application or not."""
        return len(self._accepting.connections)

    async def open(self) -> None:
        """
        Start to listen; return when every endpoint was tried, or two seconds after the first one listens.

        Raises RelayFailed if no endpoint accepts this listener. An endpoint that answers later is used from then on.
        """
        first = {name: asyncio.get_running_loop().create_future() for name in self._endpoints}
        self._keeping = [asyncio.ensure_future(self._keep(name, first[name])) for name in self._endpoints]
        try:
            await self._tried({*first.values()})
        except BaseException:
            await self._leave()
            await self._opening.close()
            raise
        if not any(listening.is_on for listening in self._states.values()):
            errors = {name: state.error for name, state in self._states.items() if state.error is not None}
            await self._leave()
            await self._opening.close()
            text = "; ".join(str(error) for error in errors.values())
            raise RelayFailed(f"listening: {text}", errors)

    async def close(self, drain: timedelta = _DRAIN) -> None:
        """
        Take no new offers and wait for the accepted connections to end.

        After *drain*, close them with code 1001 and drop undecided offers. Iteration returns the accepted connections
        that were not taken, then ends.
        """
        end = self._clock.monotonic() + drain.total_seconds()
        await self._leave()
        await self._accepting.finish(end - self._clock.monotonic())
        drained = asyncio.ensure_future(self._accepting.drained.wait())
        await is_done_within(self._clock, end - self._clock.monotonic(), drained)
        await ended(drained)
        await self._end(self._accepting.connections)
        await self._opening.close()

    def __aiter__(self) -> Self:
        """Return itself, for the connections."""
        return self

    async def __anext__(self) -> RelayConnection:
        """Return the next connection."""
        connection = await self._accepting.taken()
        if connection is None:
            raise StopAsyncIteration
        return connection

    async def __aenter__(self) -> Self:
        """Open the listener."""
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the listener; connections that were not taken end at once, and all connections if the block failed."""
        drain = _DRAIN if kind is None else timedelta()
        await self._leave()
        await self._accepting.finish(drain.total_seconds())
        await self._end(self._accepting.untaken())
        await self.close(drain)

    async def _tried(self, pending: "set[asyncio.Future[None]]") -> None:
        while pending and not any(listening.is_on for listening in self._states.values()):
            _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        if pending:
            others = asyncio.ensure_future(asyncio.wait(pending))
            await is_done_within(self._clock, _OTHERS, others)
            await ended(others)

    async def _keep(self, name: str, first: "asyncio.Future[None]") -> None:
        endpoint = self._endpoints[name]
        attempt = 0
        while True:
            opened_at = None
            channel = ControlChannel(endpoint, self._opening, self._clock, self._silence, self._patience)
            try:
                await channel.open()
                opened_at = self._clock.monotonic()
                self._now(name, Listening(True), first)
                await channel.run(partial(self._offered, name))
            except RelayError as error:
                self._now(name, Listening(False, error), first)
            except Exception as error:
                # An unexpected error ends this channel, but not the listener.
                _LOGGER.exception("%s: the control channel failed", name)
                failure = RelayError(f"{endpoint.place}: the control channel failed with {type(error).__name__}")
                self._now(name, Listening(False, failure), first)
            finally:
                await channel.close()
            if opened_at is not None and self._clock.monotonic() - opened_at >= _STEADY:
                attempt = 0
            await self._clock.wait(_PAUSES[attempt] * self._jitter.uniform(0.8, 1.2))
            attempt = min(attempt + 1, len(_PAUSES) - 1)

    def _offered(self, name: str, message: Mapping[str, Any]) -> None:
        self._accepting.begin(name, self._endpoints[name], message)

    def _now(self, name: str, state: Listening, first: "asyncio.Future[None]") -> None:
        if state.is_on:
            _LOGGER.info("%s: listening", name)
        else:
            _LOGGER.warning("%s: not listening: %s", name, state.error)
        self._states[name] = state
        if not first.done():
            first.set_result(None)

    async def _leave(self) -> None:
        await asyncio.gather(*[ended(task) for task in self._keeping])
        self._keeping = []
        self._states = dict.fromkeys(self._endpoints, Listening(False))

    async def _end(self, connections: Sequence[RelayConnection]) -> None:
        closing = [connection.close(_GOING_AWAY, "the listener is closing") for connection in [*connections]]
        await asyncio.gather(*closing)
