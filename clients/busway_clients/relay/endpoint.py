"""One hybrid connection in one namespace: its addresses in the protocol, and the tokens that it accepts."""

import asyncio
import base64
import hashlib
import hmac
import inspect
import ssl
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

from azure.core.credentials import AccessToken, AzureNamedKeyCredential, AzureSasCredential, TokenCredential
from azure.core.credentials_async import AsyncTokenCredential
from yarl import URL

from busway_clients.errors import RelayError, WrongUse

_PREFIX = "/$hc/"
_SIGNED_SECONDS = 3600
_SCOPE = "https://relay.azure.net/.default"


Credential = AzureNamedKeyCredential | AzureSasCredential | TokenCredential | AsyncTokenCredential


@dataclass(frozen=True)
class RelayEndpoint:
    """
    A hybrid connection.

    Shape:  host may have a port; without credential only senders can connect, to a relay that allows anonymous ones;
            is_plain is for a relay on the same machine, without TLS; proxy is a URL.
    """

    host: str
    path: str
    credential: Credential | None = field(default=None, repr=False)
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
    def from_connection_string(cls, text: str, path: str | None = None) -> "RelayEndpoint":
        """
        Return the endpoint of a connection string, with *path* or else its EntityPath.

        `UseDevelopmentEmulator=true` means no TLS. Raises WrongUse, without quoting the connection string.
        """
        pairs = [part.partition("=") for part in text.split(";")]
        values = {name.strip().lower(): value.strip() for name, _, value in pairs}
        host = urlsplit(values.get("endpoint", "")).netloc
        if not host:
            raise WrongUse("the connection string of a relay: has no Endpoint, expected sb://<host>/")
        credential: Credential | None = None
        name, key = values.get("sharedaccesskeyname"), values.get("sharedaccesskey")
        if "sharedaccesssignature" in values:
            credential = AzureSasCredential(values["sharedaccesssignature"])
        elif name and key:
            credential = AzureNamedKeyCredential(name, key)
        elif name or key:
            text = "the connection string has one of SharedAccessKeyName and SharedAccessKey, expected both"
            raise WrongUse(f"{host}: {text}")
        is_plain = values.get("usedevelopmentemulator", "").lower() == "true"
        return cls(host, path or values.get("entitypath", ""), credential, is_plain)

    @property
    def place(self) -> str:
        """Return the name of the endpoint in errors and logs."""
        return f"{self.host}/{self.path}"

    async def token(self, now: Callable[[], float] = time.time) -> AccessToken | None:
        """
        Return a token that is signed with a key (service-bus-sas), signed elsewhere, or of Microsoft Entra.

        None if the endpoint needs none. Raises RelayError if none is available.
        """
        if self.credential is None:
            return None
        try:
            if isinstance(self.credential, AzureNamedKeyCredential):
                name, key = self.credential.named_key
                expiry = int(now()) + _SIGNED_SECONDS
                resource = quote(f"http://{urlsplit(f'//{self.host}').hostname}/{self.path}", safe="")
                digest = hmac.digest(key.encode(), f"{resource}\n{expiry}".encode(), hashlib.sha256)
                signed = f"sr={resource}&sig={quote(base64.b64encode(digest), safe='')}&se={expiry}"
                return AccessToken(f"SharedAccessSignature {signed}&skn={quote(name, safe='')}", expiry)
            if isinstance(self.credential, AzureSasCredential):
                text = self.credential.signature
                return AccessToken(text, int(parse_qs(text.partition(" ")[2])["se"][0]))
            got: Any = await asyncio.to_thread(self.credential.get_token, _SCOPE)
            token: AccessToken = await got if inspect.isawaitable(got) else got
        except Exception as error:
            raise RelayError(f"{self.place}: no token is available ({type(error).__name__})") from error
        return token

    def url(
        self,
        action: Literal["listen", "connect"],
        token: AccessToken | None,
        suffix: str = "",
        query: Mapping[str, str] = {},
    ) -> URL:
        """Return the address of a control channel or of a sender, whose *suffix* and *query* reach the listener."""
        if reserved := [name for name in query if name.lower().startswith("sb-")]:
            raise WrongUse(f"{self.place}: the query has {', '.join(reserved)}, expected no name that begins with sb-")
        path = "/".join(filter(None, (self.path, suffix.strip("/"))))
        asked = {**query, "sb-hc-action": action, "sb-hc-id": str(uuid.uuid4())}
        if token is not None:
            asked["sb-hc-token"] = token.token
        scheme = "ws" if self.is_plain else "wss"
        return URL(f"{scheme}://{self.host}{_PREFIX}{quote(path)}?{urlencode(asked, quote_via=quote)}", encoded=True)

    def rest_of(self, address: URL) -> tuple[str, dict[str, str]]:
        """Return the suffix and the query that a sender added, from a rendezvous address."""
        whole = unquote(address.raw_path).removeprefix(_PREFIX).lstrip("/")
        suffix = whole[len(self.path) :] if whole.lower().startswith(self.path.lower()) else ""
        query = {name: value for name, value in address.query.items() if not name.lower().startswith("sb-")}
        return suffix.strip("/"), query
