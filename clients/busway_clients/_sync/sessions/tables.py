# Generated from busway_clients/aio by tools/generate-sync-clients: change the source, then run it.
"""Where version 0.2.0 had `TableStore` for asyncio."""

from busway_clients._sync.tables import TableStore

__all__ = ["TableStore"]
