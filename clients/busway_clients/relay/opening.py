"""Opens WebSockets to a relay and classifies failures (Azure Relay Hybrid Connections protocol)."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import aiohttp
from yarl import URL

from busway_clients.errors import NotARelay, RelayError, RelayRefused, RelayUnavailable
from busway_clients.relay.clock import Clock, ended, is_done_within
from busway_clients.relay.endpoint import RelayEndpoint

Socket = aiohttp.ClientWebSocketResponse

_MAX_REASON = 200
# Statuses of a busy or failing service; 408 and 504 also mean that no listener came to the rendezvous.
_PASSING = frozenset({408, 429, 500, 502, 503, 504})
_NO_PATH = 404
_FIRST_ERROR = 400

# aiohttp's error lacks the reason phrase, which contains the relay's explanation and the id for support.
_reason: ContextVar[list[str] | None] = ContextVar("reason", default=None)


class Answered(Exception):
    """An HTTP answer instead of a WebSocket."""

    def __init__(self, status: int, reason: str, kind: str) -> None:
        super().__init__()
        self.status = status
        self.reason = reason
        self.kind = kind

    @property
    def text(self) -> str:
        """Return a description of the answer."""
        return f"HTTP {self.status}" + "".join(f" ({part})" for part in (self.reason, self.kind) if part)


class Opening:
    """Opens the WebSockets of a listener or a client; close it after all of them are closed."""

    def __init__(self, clock: Clock, max_message_bytes: int) -> None:
        """Limit the size of a received message; the first WebSocket creates the session, in its event loop."""
        self._clock = clock
        self._max_message_bytes = max_message_bytes
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def token(self, endpoint: RelayEndpoint) -> tuple[str | None, float]:
        """Return a token and when it expires; raises RelayError if none is available."""
        if endpoint.tokens is None:
            return None, float("inf")
        try:
            text, expires_at = await endpoint.tokens.token(endpoint.resource, self._clock.now())
        except Exception as error:
            raise RelayError(f"{endpoint.place}: no token is available ({type(error).__name__})") from error
        return text, expires_at

    async def open(
        self,
        endpoint: RelayEndpoint,
        url: URL,
        timeout: float,  # noqa: ASYNC109 - measured by the clock that was passed in
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        protocols: Sequence[str] = (),
    ) -> Socket:
        """Open a WebSocket. Raises Answered, RelayUnavailable."""
        sent = dict(headers or {})
        if token is not None and endpoint.authorization == "header":
            sent["ServiceBusAuthorization"] = token
        opening = asyncio.ensure_future(self._open(endpoint, url, sent, protocols))
        is_taken = False
        try:
            is_taken = await is_done_within(self._clock, timeout, opening)
            if not is_taken:
                raise RelayUnavailable(f"{endpoint.place}: no answer within {timeout:g} s, expected a WebSocket")
            return opening.result()
        finally:
            await ended(opening)
            if not is_taken and not opening.cancelled() and opening.exception() is None:
                # The caller was cancelled while the WebSocket opened.
                await opening.result().close()

    async def _open(
        self, endpoint: RelayEndpoint, url: URL, headers: Mapping[str, str], protocols: Sequence[str]
    ) -> Socket:
        reasons: list[str] = []
        _reason.set(reasons)
        failure: Exception
        try:
            return await self._opened().ws_connect(
                url,
                headers=headers,
                protocols=protocols,
                # Frames answers pings and uses pongs to detect whether the other side is alive.
                autoping=False,
                max_msg_size=self._max_message_bytes,
                proxy=endpoint.proxy,
                ssl=endpoint.tls if endpoint.tls is not None else True,
            )
        except _Redirected as error:
            failure = NotARelay(f"{endpoint.place}: redirects with HTTP {error.status}, expected a relay")
        except aiohttp.WSServerHandshakeError as error:
            kind = error.headers.get("Content-Type", "").partition(";")[0] if error.headers else ""
            failure = Answered(error.status, reasons[-1] if reasons else "", kind)
        except aiohttp.ClientResponseError:
            failure = NotARelay(f"{endpoint.place}: did not answer with HTTP, expected a relay")
        except aiohttp.InvalidURL:
            failure = NotARelay(f"{endpoint.place}: returned an invalid address, expected ws:// or wss://")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failure = RelayUnavailable(f"{endpoint.place}: cannot be reached ({_cause(error)})")
        # Without the cause: aiohttp's errors quote the address, which contains the token.
        raise failure from None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            watch = aiohttp.TraceConfig()
            watch.on_request_end.append(_keep_reason)
            watch.on_request_redirect.append(_stay)
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
                # Each WebSocket needs its own connection, and a listener may have many.
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                trace_configs=[watch],
            )
        return self._session


def refusal(endpoint: RelayEndpoint, answer: Answered, role: str) -> RelayError:
    """Return the error for an answer to a `listener` or a `sender`."""
    where, seen = endpoint.place, answer.text
    if answer.status < _FIRST_ERROR:
        return NotARelay(f"{where}: answered {seen} instead of opening a WebSocket, expected a relay")
    if answer.status in _PASSING:
        return RelayUnavailable(f"{where}: answered {seen}, expected a WebSocket")
    if answer.status == _NO_PATH and role == "sender":
        # The relay answers the same for a missing hybrid connection and for one without a listener.
        return RelayUnavailable(f"{where}: answered {seen}, expected a hybrid connection with a listener")
    return RelayRefused(f"{where}: refused the {role} with {seen}", answer.status)


class _Redirected(Exception):
    def __init__(self, status: int) -> None:
        super().__init__()
        self.status = status


async def _keep_reason(
    session: aiohttp.ClientSession,  # noqa: ARG001 - aiohttp's signature
    context: SimpleNamespace,  # noqa: ARG001 - likewise
    parameters: aiohttp.TraceRequestEndParams,
) -> None:
    if (reasons := _reason.get()) is not None:
        reason = "".join(each for each in parameters.response.reason or "" if each.isprintable())
        reasons.append(reason[:_MAX_REASON])


async def _stay(
    session: aiohttp.ClientSession,  # noqa: ARG001 - aiohttp's signature
    context: SimpleNamespace,  # noqa: ARG001 - likewise
    parameters: aiohttp.TraceRequestRedirectParams,
) -> None:
    # The token is for this relay only, and aiohttp would send the headers to the new address.
    parameters.response.close()
    raise _Redirected(parameters.response.status)


def _cause(error: Exception) -> str:
    inner: Any = error
    with contextlib.suppress(AttributeError):
        inner = inner.os_error
    number = getattr(inner, "errno", None)
    return type(error).__name__ + (f", errno {number}" if number else "")
