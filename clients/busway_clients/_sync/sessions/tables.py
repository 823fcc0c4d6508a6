# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
"""`TableStore` for asyncio; needs `busway-clients[tables]`."""

from busway_clients._sync.tables import TableStore

__all__ = ["TableStore"]
