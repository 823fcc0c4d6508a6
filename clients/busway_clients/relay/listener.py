"""A listener at several relays at once, which stays reachable if one of them fails (article on outages)."""

import asyncio
import contextlib
import json
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any, NamedTuple, Self
from urllib.parse import quote, urlencode

from azure.core.credentials import AccessToken
from yarl import URL

from busway_clients.errors import RelayError, RelayFailed, RelayRefused, WrongUse
from busway_clients.relay.connection import PATIENCE, RelayConnection, Sockets
from busway_clients.relay.endpoint import RelayEndpoint

_LOGGER = logging.getLogger("busway_clients.relay")
PAUSES = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
# After an attempt has lasted this long, the next one starts without a pause again.
_STEADY = 60.0
_DRAIN = timedelta(seconds=30)
# How long opening waits for the other endpoints once one listens.
_OTHERS = 2.0
# A token is renewed after four fifths of its lifetime; on failure, after four fifths of the remaining time.
_PART = 0.8
_SHORTEST = 1.0
# The answer to an HTTP request: the service may block a listener that lets requests time out.
_ONLY_WEBSOCKETS = {
    "statusCode": 501,
    "statusDescription": "this listener accepts only WebSockets",
    "responseHeaders": {},
    "body": False,
}


class Offer:
    """
    A sender that wants to connect; the application accepts or rejects it.

    Shape:  endpoint is its name in the listener; suffix and query are what the sender added to the address, protocols
            the subprotocols that it supports; headers are all that it sent, without tokens.
    """

    def __init__(self, name: str, endpoint: RelayEndpoint, offered: Mapping[str, Any], sockets: Sockets) -> None:
        """Read what the relay *offered*; raises RelayError for an invalid rendezvous address."""
        try:
            self._address = URL(str(offered.get("address", "")), encoded=True)
        except ValueError:
            self._address = URL()
        expected = "ws" if endpoint.is_plain else "wss"
        if self._address.host is None or self._address.scheme not in {expected, "wss"}:
            raise RelayError(f"{endpoint.place}: an offer has no {expected}:// address and is ignored")
        headers = offered.get("connectHeaders")
        self.endpoint = name
        self.headers = {str(key): str(value) for key, value in headers.items()} if isinstance(headers, dict) else {}
        self.suffix, self.query = endpoint.rest_of(self._address)
        asked = next((value for key, value in self.headers.items() if key.lower() == "sec-websocket-protocol"), "")
        self.protocols = tuple(protocol.strip() for protocol in asked.split(",") if protocol.strip())
        self.is_answered = False
        self._relay = endpoint
        self._sockets = sockets

    async def accept(self, protocol: str | None = None) -> RelayConnection:
        """Return the connection, with one of the subprotocols that the sender supports; raises RelayError."""
        self.is_answered = True
        protocols = () if protocol is None else (protocol,)
        role = "listener at the rendezvous"
        return await self._sockets.open(self.endpoint, self._relay, self._address, role, protocols=protocols)

    async def reject(self, status: int, reason: str) -> None:
        """Reject the sender, which sees both; raises WrongUse for a status that is not from 400 to 599."""
        if not 400 <= status <= 599:  # noqa: PLR2004 - as in the error
            raise WrongUse(f"the status of a rejection: is {status}, expected one from 400 to 599")
        self.is_answered = True
        said = urlencode({"sb-hc-statusCode": status, "sb-hc-statusDescription": reason}, quote_via=quote)
        joint = "&" if self._address.raw_query_string else "?"
        # The relay confirms a rejection with 410 instead of a WebSocket.
        with contextlib.suppress(RelayRefused):
            url = URL(f"{self._address}{joint}{said}", encoded=True)
            await (await self._sockets.open(self.endpoint, self._relay, url, "rejection")).close()


class Listening(NamedTuple):
    """Whether this listener is registered at an endpoint, and if not, the error."""

    is_on: bool
    error: RelayError | None = None


class RelayListener(AbstractAsyncContextManager["RelayListener"]):
    """
    Accepts connections at one or more endpoints.

    Each endpoint is independent: if its control channel ends, it is opened again at once, then after 1, 2, 5, 10 and 30
    seconds, until the listener is closed. Tokens are renewed before they expire.
    """

    def __init__(
        self,
        endpoints: Mapping[str, RelayEndpoint],
        serve: Callable[[Offer], Awaitable[object]],
        *,
        keep_alive: timedelta = PATIENCE,
        patience: timedelta = PATIENCE,
        pauses: Sequence[float] = PAUSES,
    ) -> None:
        """
        Listen at *endpoints*, by any names, and call *serve* for each offer, concurrently.

        An offer that *serve* leaves without an answer is rejected with 500. After *keep_alive* without a frame a
        connection is pinged, and ends if no answer comes within half of it; *patience* is the timeout for each answer
        of a relay. Units: pauses before each attempt in seconds, the last one repeats.
        """
        if not endpoints:
            raise WrongUse("endpoints of a listener: got none, expected one or more")
        places = [endpoint.place.lower() for endpoint in endpoints.values()]
        if len({*places}) < len(places):
            raise WrongUse(f"the endpoints of a listener: are {', '.join(places)}, expected different ones")
        self._endpoints = dict(endpoints)
        self._serve = serve
        self._pauses = pauses
        self._sockets = Sockets(keep_alive, patience)
        self._states = dict.fromkeys(endpoints, Listening(False))
        self._changed = asyncio.Condition()
        self._channels: list[asyncio.Task[None]] = []
        self._served: set[asyncio.Task[None]] = set()

    @property
    def state(self) -> Mapping[str, Listening]:
        """Return the current state of each endpoint."""
        return dict(self._states)

    async def __aenter__(self) -> Self:
        """
        Start to listen; return when every endpoint was tried, or two seconds after the first one listens.

        Raises RelayFailed if no endpoint accepts this listener. An endpoint that answers later is used from then on.
        """
        self._channels = [asyncio.create_task(self._keep(name)) for name in self._endpoints]
        try:
            async with self._changed:
                await self._changed.wait_for(lambda: self._is_on() or self._is_tried())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_OTHERS):
                        await self._changed.wait_for(self._is_tried)
            if not self._is_on():
                errors = {name: state.error for name, state in self._states.items() if state.error is not None}
                raise RelayFailed(f"listening: {'; '.join(map(str, errors.values()))}", errors)  # noqa: TRY301 - closed
        except BaseException:
            await self.close(timedelta())
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Close the listener, and all connections at once if the block failed."""
        await self.close(_DRAIN if kind is None else timedelta())

    async def close(self, drain: timedelta = _DRAIN) -> None:
        """Take no new offers, and wait at most *drain* for those being served; then end them, with code 1001."""
        for channel in self._channels:
            channel.cancel()
        await asyncio.gather(*self._channels, return_exceptions=True)
        self._states = dict.fromkeys(self._endpoints, Listening(False))
        left: set[asyncio.Task[None]] = set()
        if self._served:
            _, left = await asyncio.wait({*self._served}, timeout=drain.total_seconds())
        if left:
            _LOGGER.warning("%s offers were still served %g s after closing", len(left), drain.total_seconds())
        await self._sockets.close("the listener is closing")
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _is_on(self) -> bool:
        return any(state.is_on for state in self._states.values())

    def _is_tried(self) -> bool:
        return all(state.is_on or state.error is not None for state in self._states.values())

    async def _keep(self, name: str) -> None:
        """Keep the control channel of an endpoint open."""
        endpoint = self._endpoints[name]
        attempt = 0
        while True:
            began = time.monotonic()
            try:
                token = await endpoint.token()
                url = endpoint.url("listen", token)
                async with await self._sockets.open(name, endpoint, url, "listener") as channel:
                    await self._note(name, None)
                    await self._obey(channel, token)
            except RelayError as error:
                await self._note(name, error)
            except Exception as error:
                # An unexpected error ends this channel, but not the listener.
                _LOGGER.exception("%s: the control channel failed", name)
                text = f"{endpoint.place}: the control channel failed with {type(error).__name__}"
                await self._note(name, RelayError(text))
            attempt = 0 if time.monotonic() - began >= _STEADY else attempt
            await asyncio.sleep(self._pauses[min(attempt, len(self._pauses) - 1)] * random.uniform(0.8, 1.2))
            attempt += 1

    async def _note(self, name: str, error: RelayError | None) -> None:
        if error is None:
            _LOGGER.info("%s: listening", name)
        else:
            _LOGGER.warning("%s: not listening: %s", name, error)
        async with self._changed:
            self._states[name] = Listening(error is None, error)
            self._changed.notify_all()

    async def _obey(self, channel: RelayConnection, token: AccessToken | None) -> None:
        """Serve offers until the channel ends, and raise its RelayError."""
        renewing = asyncio.create_task(self._renew(channel, token))
        try:
            while True:
                message = await channel.receive()
                try:
                    # Bytes are the body of an HTTP request, which was already declined.
                    content = json.loads(message) if isinstance(message, str) else {}
                except (ValueError, RecursionError):
                    content = None
                match content:
                    case {"accept": {} as offered}:
                        serving = asyncio.create_task(self._serve_offer(channel.endpoint, offered))
                        self._served.add(serving)
                        serving.add_done_callback(self._served.discard)
                    case {"request": {"id": number}}:
                        await channel.send(json.dumps({"response": {"requestId": number, **_ONLY_WEBSOCKETS}}))
                    case {}:
                        pass
                    case _:
                        text = "%s: a control message is not a JSON object and is ignored"
                        _LOGGER.warning(text, channel.endpoint)
        finally:
            renewing.cancel()

    async def _renew(self, channel: RelayConnection, token: AccessToken | None) -> None:
        while token is not None:
            await asyncio.sleep(max((token.expires_on - time.time()) * _PART, _SHORTEST))
            try:
                renewed = await self._endpoints[channel.endpoint].token()
                if renewed is not None and renewed.expires_on > token.expires_on:
                    await channel.send(json.dumps({"renewToken": {"token": renewed.token}}))
                    token = renewed
            except RelayError as error:
                _LOGGER.warning("%s: the token could not be renewed: %s", channel.endpoint, error)

    async def _serve_offer(self, name: str, offered: Mapping[str, Any]) -> None:
        # What fails the relay or the connection reports to the sender; the listener continues with other offers.
        try:
            offer = Offer(name, self._endpoints[name], offered, self._sockets)
            try:
                await self._serve(offer)
            except RelayError as error:
                _LOGGER.warning("%s: an offer failed: %s", name, error)
            except Exception:
                _LOGGER.exception("%s: the application failed to serve an offer", name)
            if not offer.is_answered:
                await offer.reject(500, "the listener did not decide")
        except RelayError as error:
            _LOGGER.warning("%s: an offer failed: %s", name, error)
