"""`TableStore`: Azure Storage, Cosmos DB for Table, or Azurite; needs `busway-clients[tables]`."""

from busway_clients._sync.tables import TableStore

__all__ = ["TableStore"]
