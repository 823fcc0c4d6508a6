"""
Secrets by name, from Key Vault or from app settings, and never in a text.

1. BUSWAY_KEY_VAULT names the vault, which the app's own identity opens (DefaultAzureCredential). Without it a secret is
   the app setting BUSWAY_SECRET_NAME, in upper case and with `_` for `-`.
2. What has been read is used for REFRESH_SECONDS and then read again, so that a new version is taken up unasked. While
   the vault is away, or has thought better of it, the one at hand serves on and the log tells so.
3. A value leaves its `Secret` by `reveal` alone: no repr, no error and no log line has it.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol
from urllib.parse import urlsplit

from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    DecodeError,
    HttpResponseError,
    ResourceNotFoundError,
)
from azure.identity.aio import DefaultAzureCredential
from azure.keyvault.secrets.aio import SecretClient

from shared.clock import Clock, SystemClock
from shared.errors import BuswayError, ConfigError, Problem, TargetRefused, TargetUnavailable

_LOGGER = logging.getLogger("busway.secrets")

VAULT_SETTING = "BUSWAY_KEY_VAULT"
SETTING_PREFIX = "BUSWAY_SECRET_"

REFRESH_SECONDS = 300.0
# Asked for again on purpose, after a refusal: not more often than this, for every batch may ask.
SHORTEST_REFRESH_SECONDS = 10.0
_FORBIDDEN, _THROTTLED = 403, 429


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that shows itself to nobody who does not ask, its name, and what tells its versions apart."""

    name: str
    version: str
    _value: str = field(repr=False)

    def reveal(self) -> str:
        """Return the value, for the client that needs it and for nothing else."""
        return self._value


class Secrets(Protocol):
    """Where secrets come from."""

    async def get(self, name: str, *, anew: bool = False) -> Secret:
        """
        Return a secret; *anew* asks for one that is no older than SHORTEST_REFRESH_SECONDS.

        Raises TargetUnavailable where they cannot be reached, TargetRefused where it is missing or not to be had.
        """
        ...

    def problem(self, name: str) -> Problem | None:
        """Return what can be said against a name without asking anybody."""
        ...


def open_secrets(settings: Mapping[str, str]) -> Secrets:
    """Return what the settings say secrets come from; raises ConfigError for a vault that is none."""
    url = settings.get(VAULT_SETTING)
    if not url:
        return SettingSecrets(settings)
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or parts.path.strip("/") or parts.query or parts.username:
        hint = "it looks like https://NAME.vault.azure.net"
        raise ConfigError([Problem(VAULT_SETTING, "the app setting is no address of a key vault", hint)])
    return VaultSecrets(url)


class SettingSecrets:
    """Secrets that are app settings: for a laptop, or where Functions resolves references to a vault."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Read *settings* at every question, so that one which changes is seen."""
        self._settings = settings

    async def get(self, name: str, *, anew: bool = False) -> Secret:  # noqa: ARG002 - there is nothing older
        """Return the app setting's value."""
        problem = self.problem(name)
        if problem is not None:
            raise TargetRefused(f"secret {name}: {problem.problem}, expected app setting {problem.path}")
        value = self._settings[setting_of(name)]
        return Secret(name, hashlib.sha256(value.encode()).hexdigest(), value)

    def problem(self, name: str) -> Problem | None:
        """Return a problem where the app setting is missing."""
        setting = setting_of(name)
        if self._settings.get(setting):
            return None
        hint = f"set {setting}, or {VAULT_SETTING} to the vault that has the secret {name}"
        return Problem(setting, "the app setting is missing", hint)


def _connect(url: str, credential: DefaultAzureCredential) -> SecretClient:
    # Whoever waits is a batch with a lock, and asks again by itself.
    return SecretClient(url, credential, retry_total=0)


class VaultSecrets:
    """The secrets of one key vault, which is connected to at the first question."""

    def __init__(
        self,
        url: str,
        clock: Clock | None = None,
        connect: Callable[[str, DefaultAzureCredential], SecretClient] = _connect,
    ) -> None:
        """Name the vault in errors by the host in its *url*."""
        self._url = url
        self._host = urlsplit(url).netloc
        self._clock = clock or SystemClock()
        self._connect = connect
        self._client: tuple[SecretClient, DefaultAzureCredential] | None = None
        self._read: dict[str, tuple[Secret, float]] = {}
        self._asked: dict[str, float] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    async def get(self, name: str, *, anew: bool = False) -> Secret:
        """Return the current version of a secret, from memory as long as that is young enough."""
        # One question at a time for a name: the others want the same answer.
        async with self._turns.setdefault(name, asyncio.Lock()):
            held = self._read.get(name)
            now = self._clock.monotonic()
            if held is not None and now - self._asked[name] < (SHORTEST_REFRESH_SECONDS if anew else REFRESH_SECONDS):
                return held[0]
            self._asked[name] = now
            try:
                secret = await self._ask(name)
            except BuswayError as error:
                if held is None:
                    raise
                _LOGGER.warning("%s; the version that was read before serves on", error)
                return held[0]
            if held is not None and held[0].version != secret.version:
                _LOGGER.info("secret %s: %s has a new version of it", name, self._host)
            self._read[name] = secret, now
            return secret

    def problem(self, name: str) -> Problem | None:  # noqa: ARG002 - as the protocol says
        """Return None: only the vault knows."""
        return None

    async def close(self) -> None:
        """Close the connections to the vault and to the identity."""
        opened, self._client = self._client, None
        for each in opened or ():
            await each.close()

    async def _ask(self, name: str) -> Secret:
        where = f"secret {name} in {self._host}"
        try:
            if self._client is None:
                credential = DefaultAzureCredential()
                self._client = self._connect(self._url, credential), credential
            answer = await self._client[0].get_secret(name)
        except ResourceNotFoundError as error:
            raise TargetRefused(f"{where}: the vault has none of that name") from error
        except DecodeError:
            # Its text may quote what could not be read.
            raise TargetUnavailable(f"{where}: the vault's answer cannot be read") from None
        except ClientAuthenticationError as error:
            raise TargetRefused(f"{where}: the app's identity has no token that the vault takes") from error
        except HttpResponseError as error:
            raise _translated(where, error) from error
        except (AzureError, OSError) as error:
            raise TargetUnavailable(f"{where}: the vault cannot be reached, {type(error).__name__}") from error
        except ValueError as error:
            # The SDK's way to say that the vault has sent it to an authority of another domain.
            raise TargetRefused(f"{where}: the address is no key vault's, it asks for a token of another") from error
        if not answer.value:
            raise TargetRefused(f"{where}: it is empty, expected a connection string or a key")
        return Secret(name, answer.properties.version or "", answer.value)


def setting_of(name: str) -> str:
    """Return the app setting that holds the secret called *name* where there is no vault."""
    return SETTING_PREFIX + name.upper().replace("-", "_")


def _translated(where: str, error: HttpResponseError) -> BuswayError:
    code = error.error.code if error.error is not None and isinstance(error.error.code, str) else None
    told = f"{error.status_code}" + (f" ({code})" if code else "")
    if error.status_code == _FORBIDDEN:
        hint = "expected the role Key Vault Secrets User, a secret that is enabled, and a firewall that lets the app in"
        return TargetRefused(f"{where}: the vault refuses it, {told}; {hint}")
    if error.status_code is not None and error.status_code < _THROTTLED:
        return TargetRefused(f"{where}: the vault refuses it, {told}")
    # The type of the response that the SDK declares leaves its headers out.
    headers: Mapping[str, str] = getattr(error.response, "headers", {})
    asked = headers.get("Retry-After", "")
    wait = timedelta(seconds=int(asked)) if asked.isdecimal() else None
    return TargetUnavailable(f"{where}: the vault is busy or failing, {told}", retry_after=wait)
