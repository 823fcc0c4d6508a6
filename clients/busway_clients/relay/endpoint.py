"""One hybrid connection in one namespace: its addresses in the protocol, and the tokens that it accepts."""

import asyncio
import base64
import hashlib
import hmac
import inspect
import ssl
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, NamedTuple, Protocol
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from yarl import URL

from busway_clients.errors import WrongUse

_PREFIX = "/$hc/"
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

    def __init__(self, name: str, key: str, lifetime: timedelta = timedelta(hours=1)) -> None:
        """Sign with *key*, which the relay knows as *name*; each token is valid for *lifetime*."""
        self._name = quote(name, safe="")
        self._key = key.encode()
        self._lifetime = lifetime.total_seconds()

    async def token(self, resource: str, now: float) -> Token:
        """Return a token."""
        expiry = int(now + self._lifetime)
        signed = quote(resource, safe="")
        digest = hmac.digest(self._key, f"{signed}\n{expiry}".encode(), hashlib.sha256)
        signature = quote(base64.b64encode(digest), safe="")
        return Token(f"SharedAccessSignature sr={signed}&sig={signature}&se={expiry}&skn={self._name}", expiry)


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


@dataclass(frozen=True)
class RelayEndpoint:
    """
    A hybrid connection.

    Shape:  host may have a port; without tokens only senders can connect, to a relay that allows anonymous senders;
            authorization is where the token is sent, in the query as documented or in the header
            `ServiceBusAuthorization`, which proxies do not log; is_plain is for a relay on the same machine, without
            TLS; proxy is a URL.
    """

    host: str
    path: str
    tokens: Tokens | None = field(default=None, repr=False)
    authorization: Literal["query", "header"] = "query"
    is_plain: bool = False
    proxy: str | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Raise WrongUse for an invalid host or an empty path."""
        parts = urlsplit(f"//{self.host}")
        if not parts.hostname or parts.netloc != self.host or parts.username is not None:
            raise WrongUse(f"the host of a relay: is {self.host!r}, expected a name like west.servicebus.windows.net")
        object.__setattr__(self, "path", self.path.strip("/"))
        if not self.path:
            raise WrongUse(f"{self.host}: the path is empty, expected the name of a hybrid connection")

    @classmethod
    def from_connection_string(
        cls,
        text: str,
        path: str | None = None,
        *,
        authorization: Literal["query", "header"] = "query",
        proxy: str | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> "RelayEndpoint":
        """
        Return the endpoint of a connection string, with *path* or else its EntityPath.

        `UseDevelopmentEmulator=true` means no TLS. Raises WrongUse, without quoting the connection string.
        """
        pairs = [part.partition("=") for part in text.split(";") if part.strip()]
        values = {name.strip().lower(): value.strip() for name, _, value in pairs}
        address = urlsplit(values.get("endpoint", ""))
        if not address.hostname:
            raise WrongUse("the connection string of a relay: has no Endpoint, expected sb://<host>/")
        path = path or values.get("entitypath")
        if not path:
            raise WrongUse(f"{address.hostname}: no path and no EntityPath, expected the name of a hybrid connection")
        is_plain = values.get("usedevelopmentemulator", "").lower() == "true"
        return cls(address.netloc, path, _tokens(values, address.hostname), authorization, is_plain, proxy, tls)

    @property
    def place(self) -> str:
        """Return the name of the endpoint in errors and logs."""
        return f"{self.host}/{self.path}"

    @property
    def resource(self) -> str:
        """Return the URI that tokens are signed for."""
        return f"http://{urlsplit(f'//{self.host}').hostname}/{self.path}"

    def url(
        self, action: Literal["listen", "connect"], token: Token | None, suffix: str = "", query: Mapping[str, str] = {}
    ) -> URL:
        """Return the address of a control channel or of a sender, whose *suffix* and *query* reach the listener."""
        if reserved := [name for name in query if name.lower().startswith("sb-")]:
            raise WrongUse(f"{self.place}: the query has {', '.join(reserved)}, expected no name that begins with sb-")
        path = "/".join(filter(None, (self.path, suffix.strip("/"))))
        asked = {**query, "sb-hc-action": action, "sb-hc-id": str(uuid.uuid4())}
        if token is not None and self.authorization == "query":
            asked["sb-hc-token"] = token.text
        scheme = "ws" if self.is_plain else "wss"
        return URL(f"{scheme}://{self.host}{_PREFIX}{quote(path)}?{urlencode(asked, quote_via=quote)}", encoded=True)

    def rest_of(self, address: URL) -> tuple[str, dict[str, str]]:
        """Return the suffix and the query that a sender added, from a rendezvous address."""
        whole = unquote(address.raw_path).removeprefix(_PREFIX).lstrip("/")
        suffix = whole[len(self.path) :] if whole.lower().startswith(self.path.lower()) else ""
        query = {name: value for name, value in address.query.items() if not name.lower().startswith("sb-")}
        return suffix.strip("/"), query


def _tokens(values: Mapping[str, str], host: str) -> Tokens | None:
    if "sharedaccesssignature" in values:
        return SharedAccessSignature(values["sharedaccesssignature"])
    name, key = values.get("sharedaccesskeyname"), values.get("sharedaccesskey")
    if name and key:
        return SharedAccessKey(name, key)
    if name or key:
        text = "the connection string has one of SharedAccessKeyName and SharedAccessKey, expected both"
        raise WrongUse(f"{host}: {text}")
    return None
