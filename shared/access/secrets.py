"""
Secrets by name, from Key Vault or from app settings.

BUSWAY_KEY_VAULT names the vault, which is opened with the app's identity (DefaultAzureCredential). Without it, the
secret NAME is the app setting BUSWAY_SECRET_NAME, in upper case and with `_` for `-`.
"""

import hashlib
from collections.abc import Mapping
from urllib.parse import urlsplit

from shared.errors import ConfigError, Problem, TargetRefused
from shared.protocols import Secret, Secrets

VAULT_SETTING = "BUSWAY_KEY_VAULT"
SETTING_PREFIX = "BUSWAY_SECRET_"


def open_secrets(settings: Mapping[str, str]) -> Secrets:
    """Return the store of secrets that the settings name; raises ConfigError if the vault's address is invalid."""
    url = settings.get(VAULT_SETTING)
    if not url:
        return SettingSecrets(settings)
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or parts.path.strip("/") or parts.query or parts.username:
        hint = "expected https://NAME.vault.azure.net"
        raise ConfigError([Problem(VAULT_SETTING, "the app setting is not the address of a key vault", hint)])
    from shared.access.key_vault import VaultSecrets  # noqa: PLC0415 - imports the SDK; most apps have no vault

    return VaultSecrets(url)


class SettingSecrets:
    """Secrets in app settings: on a laptop, or with Key Vault references that Functions resolves."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Read *settings* at every request, so that a change is seen."""
        self._settings = settings

    async def get(self, name: str, *, refresh: bool = False) -> Secret:  # noqa: ARG002 - nothing is cached
        """Return the app setting's value."""
        problem = self.problem(name)
        if problem is not None:
            raise TargetRefused(f"secret {name}: {problem.problem}, expected app setting {problem.path}")
        value = self._settings[setting_of(name)]
        return Secret(name, hashlib.sha256(value.encode()).hexdigest(), value)

    def problem(self, name: str) -> Problem | None:
        """Return a problem if the app setting is missing."""
        setting = setting_of(name)
        if self._settings.get(setting):
            return None
        hint = f"set {setting}, or {VAULT_SETTING} to the address of the vault that has the secret {name}"
        return Problem(setting, "the app setting is missing", hint)


def setting_of(name: str) -> str:
    """Return the name of the app setting that holds the secret *name* if there is no vault."""
    return SETTING_PREFIX + name.upper().replace("-", "_")
