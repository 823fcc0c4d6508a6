"""Endpoint documents for tests."""

import json
from typing import Any

WEST = "west-example.servicebus.windows.net"
EAST = "east-example.servicebus.windows.net"


def document(site: str = "west", serial: int | str | None = 1, **changes: Any) -> Any:
    """Return a document with *site* for both roles; a change to None takes a key away."""
    whole = {
        "version": 1,
        "serial": serial,
        "ttl_seconds": 30,
        "sites": {"west": [{"namespace": WEST}, {"namespace": WEST, "port": 443}], "east": [{"namespace": EAST}]},
        "active": {"send": site, "receive": site},
        **changes,
    }
    return json.dumps({key: value for key, value in whole.items() if value is not None}).encode()
