"""Watches whose background reads a test waits for."""

import threading

from busway_clients import EndpointWatch
from busway_clients.endpoints.endpoint import Endpoint


def endpoints_after_refresh(watch: EndpointWatch) -> tuple[Endpoint, ...]:
    """Return the endpoints after the read that a call starts if the source is due."""
    watch.endpoints()
    for thread in threading.enumerate():
        if thread.name == "busway-endpoint-source":
            thread.join(10)
    return watch.state.endpoints
