"""Where version 0.2.0 had `TableRoles`."""

from busway_clients.tables import TableRoles

__all__ = ["TableRoles"]
