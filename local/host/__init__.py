"""The local Azure Functions host."""

from local.host.host import Host, run

__all__ = ["Host", "run"]
