"""Shared access signatures, as Microsoft Learn describes them."""

import base64
import hashlib
import hmac
import time
from urllib.parse import quote_plus

from busway_broker.config import SharedAccessKey


def signature(resource: str, key: SharedAccessKey, *, seconds: int = 60, secret: str | None = None) -> str:
    """Return a token that expires after some seconds; a *secret* takes the place of the right key."""
    ends = int(time.time()) + seconds
    resource = quote_plus(resource)
    text = f"{resource}\n{ends}".encode()
    signed = base64.b64encode(hmac.new((secret or key.key).encode(), text, hashlib.sha256).digest())
    return f"SharedAccessSignature sr={resource}&sig={quote_plus(signed)}&se={ends}&skn={key.name}"
