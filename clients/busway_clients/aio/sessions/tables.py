"""Where version 0.2.0 had `TableStore` for asyncio."""

from busway_clients.aio.tables import TableStore

__all__ = ["TableStore"]
