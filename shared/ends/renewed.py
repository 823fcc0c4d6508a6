"""
An output whose connection string is a secret.

A secret is rotated while messages flow. So the output is opened again, without a restart, when the secret has a
new version: noticed when the secret is read again from time to time, and at once when the target refuses to take
anything, which is how a key that has been replaced shows. The old output is closed when the last call has left it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence

from azure.core.exceptions import AzureError

from shared.errors import BuswayError, TargetRefused, TargetUnavailable
from shared.protocols import Outgoing, Output, Secret, Secrets

_LOGGER = logging.getLogger("busway.secrets")


class _Opened:
    """An output, the secret that it was opened with, and how many calls are in it."""

    def __init__(self, output: Output, secret: Secret) -> None:
        self.output = output
        self.secret = secret
        self.calls = 0


class RenewedOutput:
    """Sends through an output that it opens with the current version of a secret."""

    def __init__(self, site: str, name: str, secrets: Secrets, open_output: Callable[[str], Output]) -> None:
        """Give *open_output* the value of the secret *name*; it raises BuswayError for one that cannot be used."""
        self._site = site
        self._name = name
        self._secrets = secrets
        self._open_output = open_output
        self._opened: _Opened | None = None
        self._retired: list[_Opened] = []
        self._unusable: str | None = None

    async def send(
        self, entity: str, messages: Sequence[Outgoing], *, timeout_seconds: float
    ) -> list[BuswayError | None]:
        """Send *messages* through the current output; see `shared.protocols.Output`."""
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        try:
            opened = await self._current(deadline)
        except BuswayError as error:
            return [error] * len(messages)
        opened.calls += 1
        try:
            left = max(deadline - asyncio.get_running_loop().time(), 0)
            answers = await opened.output.send(entity, messages, timeout_seconds=left)
        finally:
            opened.calls -= 1
            await self._close_retired()
        if any(isinstance(answer, TargetRefused) for answer in answers) and await self._is_replaced(opened, deadline):
            text = f"{self._site}/{entity}: refused with the old version of secret {self._name}, retrying the new one"
            again = TargetUnavailable(text)
            answers = [again if isinstance(answer, TargetRefused) else answer for answer in answers]
        return answers

    async def close(self) -> None:
        """Close the output behind."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.output.close()

    async def _current(self, deadline: float, *, refresh: bool = False) -> _Opened:
        """Return the output for the current secret; raises BuswayError if the secret or the output is unavailable."""
        try:
            async with asyncio.timeout_at(deadline):
                secret = await self._secrets.get(self._name, refresh=refresh)
        except TimeoutError as error:
            text = f"{self._site}: secret {self._name}: the secret store did not answer in time"
            raise TargetUnavailable(text) from error
        opened = self._opened
        if opened is not None and secret.version in (opened.secret.version, self._unusable):
            return opened
        try:
            self._opened = _Opened(self._open_output(secret.reveal()), secret)
        except BuswayError as error:
            if opened is None:
                raise
            _LOGGER.warning("%s: the old version of secret %s stays in use: %s", self._site, self._name, error)
            self._unusable = secret.version
            return opened
        if opened is not None:
            _LOGGER.info("%s: reconnecting, secret %s has a new version", self._site, self._name)
            self._retired.append(opened)
            await self._close_retired()
        return self._opened

    async def _is_replaced(self, refused: _Opened, deadline: float) -> bool:
        """Return whether another output has replaced the one that was *refused*."""
        try:
            return await self._current(deadline, refresh=True) is not refused
        except BuswayError as error:
            _LOGGER.warning("%s: access refused, and secret %s has no new version: %s", self._site, self._name, error)
            return False

    async def _close_retired(self) -> None:
        idle = [each for each in self._retired if not each.calls]
        self._retired = [each for each in self._retired if each.calls]
        for each in idle:
            # Its key has been revoked, so closing it may fail; nothing depends on that.
            with contextlib.suppress(AzureError, OSError):
                await each.output.close()
