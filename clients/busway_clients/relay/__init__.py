"""Relay endpoints (Azure Relay hybrid connections over WebSockets), for asyncio; needs the extra `relay`."""

from busway_clients.errors import extra

with extra("relay"):
    import aiohttp as _aiohttp  # noqa: F401 - checked here once for all modules of the package
    import yarl as _yarl  # noqa: F401 - likewise

from busway_clients.relay.client import RelayClient as RelayClient
from busway_clients.relay.connection import RelayConnection as RelayConnection
from busway_clients.relay.endpoint import RelayEndpoint as RelayEndpoint
from busway_clients.relay.listener import Listening as Listening
from busway_clients.relay.listener import Offer as Offer
from busway_clients.relay.listener import RelayListener as RelayListener
