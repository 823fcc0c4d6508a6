"""
Access to a namespace that declares keys: checks shared access signatures and SASL PLAIN.

A signature covers a resource and an expiry time. The client computes the expiry from the machine's clock, so it is
compared with that clock, not with the namespace's.

Source: Microsoft Learn, "Service Bus access control with shared access signatures".
"""

import base64
import hashlib
import hmac
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import unquote_plus

from busway_broker import errors
from busway_broker.config import Right, SharedAccessKey
from busway_broker.core.namespace import Namespace, path_of
from busway_broker.errors import Refusal
from shared.amqp.errors import UNAUTHORIZED_ACCESS
from shared.clock import Clock, SystemClock

_SCHEME = "SharedAccessSignature "
_FIELDS = frozenset(("sr", "sig", "se", "skn"))
_FAR_FUTURE = float("inf")
_YEAR_10000 = 253_402_300_799
_MOST_DIGITS = 19


@dataclass(frozen=True, slots=True)
class Grant:
    """
    The rights that a token or key gives on the entities under a path; the empty path is the namespace.

    Units: expires_at in seconds since 1970 UTC.
    """

    path: str
    rights: frozenset[Right]
    expires_at: float = _FAR_FUTURE

    def covers(self, path: str, rights: frozenset[Right], now: float) -> bool:
        """Return whether it gives one of *rights* on the entity at *path* (in lower case) at *now*."""
        return self.expires_at > now and bool(self.rights & rights) and is_within(path, self.path)


class Access:
    """Checks the keys of a namespace."""

    def __init__(self, namespace: Namespace, clock: Clock | None = None) -> None:
        self._namespace = namespace
        self._clock = SystemClock() if clock is None else clock

    @classmethod
    def of(cls, namespace: Namespace) -> "Access | None":
        """Return the access checks of a namespace, None for one that accepts every client."""
        config = namespace.config
        is_closed = config.shared_access_keys or config.disable_local_auth or not config.public_network_access
        return cls(namespace) if is_closed else None

    @property
    def now(self) -> float:
        """Return the time in seconds since 1970 UTC."""
        return self._clock.now().timestamp()

    def by_signature(self, token: str, audience: str) -> Grant:
        """Return what a shared access signature grants on *audience*; Refusal(AUTH_FAILED) if invalid."""
        self._check_network()
        if not token.isascii():
            raise _refusal("MalformedToken", "the token has characters that are not ASCII")
        if not token.startswith(_SCHEME):
            if self._namespace.config.accepts_entra_tokens and token:
                # No issuer is here to ask: whatever the token says is believed.
                return Grant("", frozenset(Right))
            raise _refusal(
                "InvalidToken", "the token is not a shared access signature, the only kind that is supported"
            )
        self._check_keys_are_allowed()
        fields = dict(pair.partition("=")[::2] for pair in token.removeprefix(_SCHEME).strip().split("&"))
        if not fields.keys() >= _FIELDS:
            raise _refusal("MalformedToken", f"the token lacks one of {', '.join(sorted(_FIELDS))}")
        expires_at = fields["se"]
        if not (expires_at.isdigit() and len(expires_at) <= _MOST_DIGITS):
            raise _refusal("MalformedToken", "the expiry of the token (se) is not a number")
        signed_path = path_of_resource(unquote_plus(fields["sr"]))
        text = f"{fields['sr']}\n{expires_at}".encode()
        key = self._key(unquote_plus(fields["skn"]), signed_path)
        # A plus is part of Base64 here, not an encoded space.
        signature = unquote_plus(fields["sig"].replace("+", "%2B"))
        if key is None or not any(_is_same(_sign(key, text), signature) for key in _keys(key)):
            raise _refusal("InvalidSignature", "The token has an invalid signature")
        if int(expires_at) <= self.now:
            until = datetime.fromtimestamp(min(int(expires_at), _YEAR_10000), UTC)
            raise _refusal("ExpiredToken", f"The token is expired. Expiration time: '{until:%Y-%m-%d %H:%M:%S}Z'")
        path = path_of_resource(audience)
        if not is_within(path, signed_path):
            raise _refusal("InvalidAudience", f"the token is for '{signed_path}', expected a token for '{path}'")
        return Grant(path, _with_included(key.rights), int(expires_at))

    def by_key(self, name: str, secret: str) -> Grant:
        """Return what a key of the namespace grants; Refusal(AUTH_FAILED) if name or key is wrong."""
        self._check_network()
        self._check_keys_are_allowed()
        key = self._key(name, "")
        if key is None or not any(_is_same(key, secret) for key in _keys(key)):
            raise _refusal("InvalidKey", "the name or the key is wrong")
        return Grant("", _with_included(key.rights))

    def _check_network(self) -> None:
        if not self._namespace.config.public_network_access:
            # Put token failed. status-code: 401 (pnp/Microsoft365-Analytics-Insights; microsoft/AzureTRE issue 734)
            raise Refusal(UNAUTHORIZED_ACCESS, "Ip has been prevented to connect to the endpoint.")

    def _check_keys_are_allowed(self) -> None:
        if self._namespace.config.disable_local_auth:
            text = "Authorization failed because SAS authentication has been disabled for the namespace"
            raise _refusal("LocalAuthDisabled", text)

    def _key(self, name: str, path: str) -> SharedAccessKey | None:
        """Return the key with this name, of the namespace or of an entity on *path*."""
        namespace = self._namespace
        keys = list(namespace.config.shared_access_keys)
        parts = path.split("/")
        for end in range(1, len(parts) + 1):
            prefix = "/".join(parts[:end])
            entity = namespace.queues.get(prefix) or namespace.topics.get(prefix)
            if entity is not None:
                keys += entity.config.authorization_rules
        return next((key for key in keys if key.name.lower() == name.lower()), None)


def path_of_resource(resource: str) -> str:
    """
    Return the path of the entity in a resource URI, in lower case; the path of a namespace is empty.

    >>> path_of_resource("https://localhost:5300/Orders?api-version=2021-05")
    'orders'
    """
    return path_of(resource.partition("?")[0])


def is_within(path: str, outer: str) -> bool:
    """Return whether a path is *outer* or below it."""
    return not outer or path == outer or path.startswith(f"{outer}/")


def _with_included(rights: frozenset[Right]) -> frozenset[Right]:
    return frozenset(Right) if Right.MANAGE in rights else rights


def _keys(key: SharedAccessKey) -> Iterable[str]:
    return (each for each in (key.key, key.secondary_key) if each)


def _is_same(expected: str, seen: str) -> bool:
    return hmac.compare_digest(expected.encode(), seen.encode())


def _sign(key: str, text: bytes) -> str:
    return base64.b64encode(hmac.new(key.encode(), text, hashlib.sha256).digest()).decode()


def _refusal(reason: str, description: str) -> Refusal:
    return Refusal(errors.AUTH_FAILED, f"{reason}: {description}.")
