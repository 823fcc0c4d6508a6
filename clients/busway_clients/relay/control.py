"""The control channel of a listener: receives offers from the relay, sends renewed tokens."""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

from busway_clients.errors import RelayError
from busway_clients.relay.clock import Clock, ended
from busway_clients.relay.endpoint import RelayEndpoint
from busway_clients.relay.frames import Frames
from busway_clients.relay.opening import Answered, Opening, refusal

_LOGGER = logging.getLogger("busway_clients.relay")
# A token is renewed after four fifths of its lifetime; on failure, after four fifths of the remaining time.
_PART = 0.8
_SHORTEST = 1.0
_NOT_IMPLEMENTED = 501

OnMessage = Callable[[Mapping[str, Any]], None]


class ControlChannel:
    """One control channel, from its opening to its end."""

    def __init__(
        self, endpoint: RelayEndpoint, opening: Opening, clock: Clock, silence: float, patience: float
    ) -> None:
        """Ping after *silence* seconds, wait *patience* seconds for the answer."""
        self._endpoint = endpoint
        self._opening = opening
        self._clock = clock
        self._silence = silence
        self._patience = patience
        self._frames: Frames | None = None
        self._expires_at = 0.0

    async def open(self) -> None:
        """Register as a listener; raise RelayError."""
        token, self._expires_at = await self._opening.token(self._endpoint)
        try:
            socket = await self._opening.open(
                self._endpoint, self._endpoint.listen_url(token), self._patience, token=token
            )
        except Answered as answer:
            raise refusal(self._endpoint, answer, "listener") from None
        self._frames = Frames(socket, self._endpoint, self._clock, self._silence, self._patience)

    async def run(self, on_accept: OnMessage) -> None:
        """Pass each offer to *on_accept* until the channel ends, then raise its RelayError."""
        frames = self._opened()
        tasks = [asyncio.ensure_future(self._read(frames, on_accept)), asyncio.ensure_future(self._renew(frames))]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                await ended(task)

    async def close(self) -> None:
        """Close the channel; the relay sends no further offers."""
        if self._frames is not None:
            await self._frames.close(1000, "")
            self._frames = None

    async def _read(self, frames: Frames, on_accept: OnMessage) -> None:
        while True:
            message = await frames.message()
            if isinstance(message, bytes):
                # The body of an HTTP request, which was already declined.
                continue
            try:
                content = json.loads(message)
            except (ValueError, RecursionError):
                content = None
            if not isinstance(content, dict):
                _LOGGER.warning("%s: a control message is not a JSON object and is ignored", self._endpoint.place)
            elif isinstance(offer := content.get("accept"), dict):
                on_accept(offer)
            elif isinstance(request := content.get("request"), dict):
                await self._decline(frames, request)

    async def _decline(self, frames: Frames, request: Mapping[str, Any]) -> None:
        # The service may block a listener that lets requests time out; this one supports only connections.
        response: dict[str, Any] = {
            "requestId": request.get("id"),
            "statusCode": _NOT_IMPLEMENTED,
            "statusDescription": "this listener accepts only WebSockets",
            "responseHeaders": {},
            "body": False,
        }
        if request.get("id") is not None:
            await frames.send(json.dumps({"response": response}))

    async def _renew(self, frames: Frames) -> None:
        while True:
            left = self._expires_at - self._clock.now()
            if left == float("inf"):
                await asyncio.get_running_loop().create_future()
            await self._clock.wait(max(left * _PART, _SHORTEST))
            try:
                token, expires_at = await self._opening.token(self._endpoint)
            except RelayError as error:
                _LOGGER.warning("%s: the token could not be renewed: %s", self._endpoint.place, error)
                continue
            if expires_at > self._expires_at:
                await frames.send(json.dumps({"renewToken": {"token": token}}))
                self._expires_at = expires_at

    def _opened(self) -> Frames:
        if self._frames is None:
            raise RelayError(f"{self._endpoint.place}: the control channel is not open")
        return self._frames
