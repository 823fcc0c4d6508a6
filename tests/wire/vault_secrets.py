"""Secrets of a vault that a test runs."""

import logging
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
from azure.keyvault.secrets.aio import SecretClient

from shared.access.key_vault import VaultSecrets
from shared.clock import ManualClock
from tests.vault import Vault
from tests.wire.sending import closing

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


def secrets_of(vault: Vault, clock: ManualClock | None = None) -> AbstractAsyncContextManager[VaultSecrets]:
    # The certificate that the environment names is the whole process's, and read once.
    connect = partial(SecretClient, retry_total=0, connection_verify=vault.authority)
    return closing(VaultSecrets(vault.url, clock, connect))


def a_clock() -> ManualClock:
    return ManualClock(datetime(2030, 1, 1, tzinfo=UTC))
