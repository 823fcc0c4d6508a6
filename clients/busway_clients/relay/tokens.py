"""Tokens for a relay: signed with a shared access key, signed elsewhere, or from Microsoft Entra."""

import asyncio
import base64
import hashlib
import hmac
import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qs, quote

from busway_clients.errors import WrongUse

_LIFETIME = timedelta(hours=1)
_SCOPE = "https://relay.azure.net/.default"


class Token(NamedTuple):
    """A token as it is sent. Units: expires_at in seconds since 1970, UTC."""

    text: str
    expires_at: float

    def __repr__(self) -> str:
        """Return the token without its text."""
        return f"Token(expires_at={self.expires_at:.0f})"


class Tokens(Protocol):
    """A source of tokens for an endpoint."""

    async def token(self, resource: str, now: float) -> Token:
        """Return a token for the resource, a URI; any error becomes a RelayError. Units: now in seconds."""


class SharedAccessKey:
    """Signs tokens with a key of the namespace or of the hybrid connection (service-bus-sas)."""

    def __init__(self, name: str, key: str, lifetime: timedelta = _LIFETIME) -> None:
        """Sign with *key*, which the relay knows as *name*; each token is valid for *lifetime*."""
        self._name = name
        self._key = key.encode()
        self._lifetime = lifetime.total_seconds()

    async def token(self, resource: str, now: float) -> Token:
        """Return a token."""
        expiry = int(now + self._lifetime)
        signed = quote(resource, safe="")
        digest = hmac.new(self._key, f"{signed}\n{expiry}".encode(), hashlib.sha256).digest()
        signature = quote(base64.b64encode(digest), safe="")
        name = quote(self._name, safe="")
        return Token(f"SharedAccessSignature sr={signed}&sig={signature}&se={expiry}&skn={name}", expiry)


class SharedAccessSignature:
    """A token signed elsewhere; the relay rejects it when it has expired."""

    def __init__(self, text: str) -> None:
        """Use *text*, which starts with `SharedAccessSignature`; raises WrongUse for any other text."""
        try:
            self._token = Token(text, float(parse_qs(text.partition(" ")[2])["se"][0]))
        except (KeyError, ValueError) as error:
            raise WrongUse("a shared access signature: has no expiry, expected `se=` and seconds since 1970") from error

    async def token(self, resource: str, now: float) -> Token:  # noqa: ARG002 - already signed
        """Return the token."""
        return self._token


class Identity:
    """Tokens of Microsoft Entra, from a synchronous or asynchronous credential of azure-identity."""

    def __init__(self, credential: Any) -> None:  # noqa: ANN401 - the SDK has two protocols
        """Use the credential's get_token; the caller closes it."""
        self._get_token: Callable[[str], Any] = credential.get_token

    async def token(self, resource: str, now: float) -> Token:  # noqa: ARG002 - one scope for all relays
        """Return a token."""
        if inspect.iscoroutinefunction(self._get_token):
            got = await self._get_token(_SCOPE)
        else:
            got = await asyncio.to_thread(self._get_token, _SCOPE)
        return Token(got.token, got.expires_on)
