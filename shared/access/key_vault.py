"""
The secrets of one Azure Key Vault.

A secret that has been read is used for REFRESH_SECONDS and then read again, so a new version is picked up by itself.
While the vault is unavailable or denies access, the last version that was read stays in use, with a warning in the log.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from azure.core.credentials_async import AsyncTokenCredential
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    DecodeError,
    HttpResponseError,
    ResourceNotFoundError,
)
from azure.keyvault.secrets.aio import SecretClient

from shared.access.identity import async_credential
from shared.clock import Clock, SystemClock
from shared.errors import BuswayError, Problem, TargetRefused, TargetUnavailable, requested_wait
from shared.protocols import Secret

_LOGGER = logging.getLogger("busway.secrets")

REFRESH_SECONDS = 300.0
# After a refusal every batch may ask for the current version; this limits how often the vault is asked.
SHORTEST_REFRESH_SECONDS = 10.0
_FORBIDDEN, _THROTTLED = 403, 429


def _connect(url: str, credential: AsyncTokenCredential) -> SecretClient:
    # No retries here: a batch with a lock is waiting, and the pipeline retries.
    return SecretClient(url, credential, retry_total=0)


class VaultSecrets:
    """The secrets of one key vault; connects at the first request."""

    def __init__(
        self,
        url: str,
        clock: Clock | None = None,
        connect: Callable[[str, AsyncTokenCredential], SecretClient] = _connect,
    ) -> None:
        """Name the vault in errors by the host in its *url*."""
        self._url = url
        self._host = urlsplit(url).netloc
        self._clock = clock or SystemClock()
        self._connect = connect
        self._client: tuple[SecretClient, AsyncTokenCredential] | None = None
        self._read: dict[str, tuple[Secret, float]] = {}
        self._requested_at: dict[str, float] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    async def get(self, name: str, *, refresh: bool = False) -> Secret:
        """Return a secret, from the cache if it was read less than REFRESH_SECONDS ago."""
        # One request at a time per name: concurrent callers share the answer.
        async with self._turns.setdefault(name, asyncio.Lock()):
            held = self._read.get(name)
            now = self._clock.monotonic()
            oldest = SHORTEST_REFRESH_SECONDS if refresh else REFRESH_SECONDS
            if held is not None and now - self._requested_at[name] < oldest:
                return held[0]
            self._requested_at[name] = now
            try:
                secret = await self._fetch(name)
            except BuswayError as error:
                if held is None:
                    raise
                _LOGGER.warning("%s; the last version that was read stays in use", error)
                return held[0]
            if held is not None and held[0].version != secret.version:
                _LOGGER.info("secret %s: new version in %s", name, self._host)
            self._read[name] = secret, now
            return secret

    def problem(self, name: str) -> Problem | None:  # noqa: ARG002 - required by the protocol
        """Return None: only the vault can say."""
        return None

    async def close(self) -> None:
        """Close the connections to the vault and to the identity provider."""
        opened, self._client = self._client, None
        for each in opened or ():
            await each.close()

    async def _fetch(self, name: str) -> Secret:
        where = f"secret {name} in {self._host}"
        try:
            if self._client is None:
                credential = async_credential()
                self._client = self._connect(self._url, credential), credential
            answer = await self._client[0].get_secret(name)
        except ResourceNotFoundError as error:
            raise TargetRefused(f"{where}: the vault has no secret with this name") from error
        except DecodeError:
            # The SDK's error text may quote the response.
            raise TargetUnavailable(f"{where}: the vault's response cannot be read") from None
        except ClientAuthenticationError as error:
            raise TargetRefused(f"{where}: the app's identity got no token that the vault accepts") from error
        except HttpResponseError as error:
            raise _translated(where, error) from error
        except (AzureError, OSError) as error:
            raise TargetUnavailable(f"{where}: the vault cannot be reached, {type(error).__name__}") from error
        except ValueError as error:
            # The SDK raises this when the challenge names a resource of another domain.
            raise TargetRefused(f"{where}: not the address of a key vault: it asks for another token") from error
        if not answer.value:
            raise TargetRefused(f"{where}: it is empty, expected a connection string or a key")
        return Secret(name, answer.properties.version or "", answer.value)


def _translated(where: str, error: HttpResponseError) -> BuswayError:
    code = error.error.code if error.error is not None and isinstance(error.error.code, str) else None
    status = f"{error.status_code}" + (f" ({code})" if code else "")
    if error.status_code == _FORBIDDEN:
        hint = "expected the role Key Vault Secrets User, an enabled secret, and a firewall that admits the app"
        return TargetRefused(f"{where}: the vault denies access, {status}; {hint}")
    if error.status_code is not None and error.status_code < _THROTTLED:
        return TargetRefused(f"{where}: the vault denies access, {status}")
    # The SDK's declared response type has no headers.
    headers: Mapping[str, str] = getattr(error.response, "headers", {})
    wait = requested_wait(headers.get("Retry-After"))
    return TargetUnavailable(f"{where}: the vault is busy or failing, {status}", retry_after=wait)
