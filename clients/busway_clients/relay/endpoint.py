"""One hybrid connection in one namespace, and its addresses in the protocol."""

import ssl
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote, unquote, urlencode, urlsplit

from yarl import URL

from busway_clients.errors import WrongUse
from busway_clients.relay.tokens import SharedAccessKey, SharedAccessSignature, Tokens

_PREFIX = "/$hc/"
_RESERVED = "sb-hc-"


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
        if not self.path.strip("/"):
            raise WrongUse(f"{self.host}: the path is empty, expected the name of a hybrid connection")
        object.__setattr__(self, "path", self.path.strip("/"))

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
        return cls(
            address.netloc,
            path,
            _tokens(values, address.hostname),
            authorization,
            values.get("usedevelopmentemulator", "").lower() == "true",
            proxy,
            tls,
        )

    @property
    def place(self) -> str:
        """Return the name of the endpoint in errors and logs."""
        return f"{self.host}/{self.path}"

    @property
    def resource(self) -> str:
        """Return the URI that tokens are signed for."""
        return f"http://{urlsplit(f'//{self.host}').hostname}/{self.path}"

    def listen_url(self, token: str | None) -> URL:
        """Return the address of a control channel."""
        return self._url("listen", token, "", {})

    def connect_url(self, token: str | None, suffix: str, query: Mapping[str, str]) -> URL:
        """Return the address of a sender; *suffix* and *query* reach the listener."""
        if reserved := [name for name in query if name.lower().startswith("sb-")]:
            raise WrongUse(f"{self.place}: the query has {', '.join(reserved)}, expected no name that begins with sb-")
        return self._url("connect", token, suffix.strip("/"), query)

    def rest_of(self, address: URL) -> tuple[str, dict[str, str]]:
        """Return the suffix and the query that a sender added, from a rendezvous address."""
        path = unquote(address.raw_path)
        whole = path[len(_PREFIX) :] if path.startswith(_PREFIX) else path.lstrip("/")
        suffix = whole[len(self.path) :] if whole.lower().startswith(self.path.lower()) else ""
        query = {name: value for name, value in address.query.items() if not name.lower().startswith("sb-")}
        return suffix.strip("/"), query

    def _url(self, action: str, token: str | None, suffix: str, query: Mapping[str, str]) -> URL:
        path = f"{self.path}/{suffix}" if suffix else self.path
        asked = {**query, f"{_RESERVED}action": action, f"{_RESERVED}id": str(uuid.uuid4())}
        if token is not None and self.authorization == "query":
            asked[f"{_RESERVED}token"] = token
        scheme = "ws" if self.is_plain else "wss"
        return URL(f"{scheme}://{self.host}{_PREFIX}{quote(path)}?{urlencode(asked, quote_via=quote)}", encoded=True)


def _tokens(values: Mapping[str, str], host: str) -> Tokens | None:
    if "sharedaccesssignature" in values:
        return SharedAccessSignature(values["sharedaccesssignature"])
    name, key = values.get("sharedaccesskeyname"), values.get("sharedaccesskey")
    if not name and not key:
        return None
    if not name or not key:
        raise WrongUse(
            f"{host}: the connection string has one of SharedAccessKeyName and SharedAccessKey, expected both"
        )
    return SharedAccessKey(name, key)
