"""Where version 0.2.0 had `TableStore`."""

from busway_clients.tables import TableStore

__all__ = ["TableStore"]
