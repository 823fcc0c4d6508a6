"""A journal in a table: Azure Storage, Cosmos DB for Table, or Azurite. Needs `busway-clients[tables]`."""

from busway_clients._sync.sessions.tables import TableStore

__all__ = ["TableStore"]
