"""`TableStore` for asyncio; needs `busway-clients[tables]`."""

from busway_clients.aio.tables import TableStore

__all__ = ["TableStore"]
