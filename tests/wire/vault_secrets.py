"""Secrets of a vault that a test runs."""

import contextlib
import logging
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from azure.keyvault.secrets.aio import SecretClient

from shared.access.key_vault import VaultSecrets
from shared.clock import ManualClock
from tests.vault import Vault

HIDDEN = "never-to-be-seen-4711"


@pytest.fixture
def vault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Vault]:
    with Vault(tmp_path / "certificate") as running:
        for name, value in running.identity().items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture(autouse=True)
def _no_secret_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG)
    yield
    assert HIDDEN not in caplog.text


@contextlib.asynccontextmanager
async def secrets_of(vault: Vault, clock: ManualClock | None = None) -> AsyncIterator[VaultSecrets]:
    # The certificate that the environment names is the whole process's, and read once.
    opened = VaultSecrets(vault.url, clock, partial(SecretClient, retry_total=0, connection_verify=vault.authority))
    try:
        yield opened
    finally:
        await opened.close()


def a_clock() -> ManualClock:
    return ManualClock(datetime(2030, 1, 1, tzinfo=UTC))
