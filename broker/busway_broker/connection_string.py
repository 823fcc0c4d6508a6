"""The connection strings of namespaces, in the form that the SDKs take for the emulators."""

from busway_broker.config import NamespaceConfig, Right

KEY_NAME = "RootManageSharedAccessKey"
KEY = "SAS_KEY_VALUE"
EMULATOR = "UseDevelopmentEmulator=true"
"""What makes clients use plain TCP."""
# The last is all its addresses.
_THIS_MACHINE = ("127.0.0.1", "0.0.0.0")  # noqa: S104 - compared only


def connection_string(host: str, port: int, config: NamespaceConfig) -> str:
    """Return a connection string with a key that the namespace accepts, preferably one with all rights."""
    keys = sorted(config.shared_access_keys, key=lambda key: Right.MANAGE not in key.rights)
    here = "localhost" if host in _THIS_MACHINE else host
    name, key = (keys[0].name, keys[0].key) if keys else (KEY_NAME, KEY)
    return f"Endpoint=sb://{here}:{port};SharedAccessKeyName={name};SharedAccessKey={key};{EMULATOR}"
