"""Where version 0.2.0 had `TablesStore`."""

from busway_clients.tables import TablesStore

__all__ = ["TablesStore"]
