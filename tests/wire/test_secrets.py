"""Secrets from a key vault that the real client talks to over https."""

import asyncio

import pytest

from shared.access.key_vault import REFRESH_SECONDS, SHORTEST_REFRESH_SECONDS, VaultSecrets
from shared.access.secrets import SettingSecrets, open_secrets, setting_of
from shared.errors import BuswayError, ConfigError, TargetRefused, TargetUnavailable
from shared.protocols import Secret
from tests.vault import Vault
from tests.wire.vault_secrets import HIDDEN, _no_secret_is_logged, a_clock, secrets_of, vault

__all__ = ["_no_secret_is_logged", "vault"]


def test_a_secret_is_read_by_the_identity_of_the_app(vault: Vault) -> None:
    async def run() -> list[Secret]:
        async with secrets_of(vault) as secrets:
            return await asyncio.gather(*(secrets.get("west") for _ in range(3)))

    vault.set("west", HIDDEN)
    first, *others = asyncio.run(run())
    assert first.reveal() == HIDDEN
    assert others == [first, first]
    assert vault.requests == ["west"], "concurrent calls share one request"
    assert HIDDEN not in repr(first) + str(first) + f"{first!r:>200}"


def test_a_new_version_is_taken_up_after_a_while_and_at_once_when_asked_for(vault: Vault) -> None:
    clock = a_clock()

    async def run() -> list[str]:
        async with secrets_of(vault, clock) as secrets:
            values = [(await secrets.get("west")).reveal()]
            vault.set("west", "second")
            values.append((await secrets.get("west")).reveal())
            clock.advance(SHORTEST_REFRESH_SECONDS)
            values.append((await secrets.get("west", refresh=True)).reveal())
            vault.set("west", "third")
            values.append((await secrets.get("west", refresh=True)).reveal())
            clock.advance(REFRESH_SECONDS)
            values.append((await secrets.get("west")).reveal())
            return values

    vault.set("west", "first")
    assert asyncio.run(run()) == ["first", "first", "second", "second", "third"]


@pytest.mark.parametrize(
    ("failing", "kind", "text"),
    [
        (None, TargetRefused, "has no secret with this name"),
        ((403, "Forbidden", {}), TargetRefused, r"denies access, 403 \(Forbidden\); expected the role"),
        ((403, "SecretDisabled", {}), TargetRefused, r"403 \(SecretDisabled\)"),
        ((400, "BadParameter", {}), TargetRefused, "denies access, 400"),
        ((429, "Throttled", {"Retry-After": "7"}), TargetUnavailable, "busy or failing, 429"),
        ((503, "ServiceUnavailable", {}), TargetUnavailable, "busy or failing, 503"),
    ],
)
def test_what_the_vault_says_becomes_an_error_that_names_vault_and_secret(
    vault: Vault, failing: tuple[int, str, dict[str, str]] | None, kind: type[BuswayError], text: str
) -> None:
    async def run() -> None:
        async with secrets_of(vault) as secrets:
            await secrets.get("west")

    vault.failing = failing
    with pytest.raises(kind, match=text) as raised:
        asyncio.run(run())
    assert f"secret west in 127.0.0.1:{vault.port}" in str(raised.value)
    if failing is not None and "Retry-After" in failing[2]:
        assert isinstance(raised.value, TargetUnavailable)
        assert raised.value.retry_after is not None
        assert raised.value.retry_after.total_seconds() == 7


def test_an_identity_without_a_token_is_refused(vault: Vault, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with secrets_of(vault) as secrets:
            await secrets.get("west")

    monkeypatch.setenv("IDENTITY_HEADER", "wrong")
    with pytest.raises(TargetRefused, match="got no token"):
        asyncio.run(run())


def test_the_last_version_is_used_while_the_vault_is_unavailable(
    vault: Vault, caplog: pytest.LogCaptureFixture
) -> None:
    clock = a_clock()

    async def run() -> None:
        async with secrets_of(vault, clock) as secrets:
            first = await secrets.get("west")
            vault.__exit__()
            clock.advance(REFRESH_SECONDS)
            assert await secrets.get("west") is first
            with pytest.raises(TargetUnavailable, match=f"secret east in 127.0.0.1:{vault_port}: the vault cannot"):
                await secrets.get("east")

    vault.set("west", HIDDEN)
    vault_port = vault.port
    asyncio.run(run())
    assert "the last version that was read stays in use" in caplog.text


@pytest.mark.parametrize(
    "url", ["http://v.vault.azure.net", "v.vault.azure.net", "https://", "https://v.vault.azure.net/secrets/a"]
)
def test_an_address_that_is_no_vault_stops_the_start(url: str) -> None:
    with pytest.raises(ConfigError, match="BUSWAY_KEY_VAULT: the app setting is not the address"):
        open_secrets({"BUSWAY_KEY_VAULT": url})


def test_without_a_vault_secrets_are_app_settings() -> None:
    settings = {"BUSWAY_SECRET_WEST_KEY": HIDDEN}
    secrets = open_secrets(settings)
    assert isinstance(secrets, SettingSecrets)
    assert setting_of("west-key") == "BUSWAY_SECRET_WEST_KEY"
    secret = asyncio.run(secrets.get("west-key"))
    assert secret.reveal() == HIDDEN
    assert HIDDEN not in secret.version
    settings["BUSWAY_SECRET_WEST_KEY"] = "another"
    assert asyncio.run(secrets.get("west-key")).version != secret.version
    with pytest.raises(TargetRefused, match="secret east: the app setting is missing, expected app setting BUSWAY_S"):
        asyncio.run(secrets.get("east"))


def test_a_vault_is_chosen_by_the_setting() -> None:
    assert isinstance(open_secrets({"BUSWAY_KEY_VAULT": "https://v.vault.azure.net/"}), VaultSecrets)
