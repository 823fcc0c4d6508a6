"""Keys made for one run of the tests, as the secrets of a task hold them."""

import json
from functools import cache
from typing import Any

from joserfc.jwk import ECKey, Key, OctKey, OKPKey, RSAKey


@cache
def made(kind: str, kid: str = "k1", **parameters: str) -> Key:
    """Return a key of a kind, the same for the same name."""
    named: Any = {"kid": kid, **parameters}
    match kind:
        case "oct":
            return OctKey.generate_key(256, named)
        case "RSA":
            return RSAKey.generate_key(2048, named)
        case "EC":
            return ECKey.generate_key("P-256", named)
        case "X25519" | "Ed25519":
            return OKPKey.generate_key(kind, named)
    raise AssertionError(kind)


def jwks(*keys: Key, private: bool = True) -> str:
    """Return what a secret with these keys holds."""
    return json.dumps({"keys": [key.as_dict(private=private) for key in keys]})


def settings(**secrets: str) -> dict[str, str]:
    """Return the app settings in which the secrets stand."""
    return {f"BUSWAY_SECRET_{name.upper()}": value for name, value in secrets.items()}
