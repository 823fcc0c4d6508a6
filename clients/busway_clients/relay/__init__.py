"""Relay endpoints (Azure Relay hybrid connections over WebSockets), for asyncio; needs the extra `relay`."""

from busway_clients.errors import extra

with extra("relay"):
    import aiohttp as _aiohttp  # noqa: F401 - checked here once for all modules of the package
    import yarl as _yarl  # noqa: F401 - likewise

from busway_clients.relay.client import RelayClient
from busway_clients.relay.connection import RelayConnection
from busway_clients.relay.endpoint import RelayEndpoint
from busway_clients.relay.listener import Listening, Offer, RelayListener

__all__ = ["Listening", "Offer", "RelayClient", "RelayConnection", "RelayEndpoint", "RelayListener"]
