"""Where a receiver connects to."""

import re
from dataclasses import dataclass

_ENDPOINT = re.compile(r"Endpoint=\w+://([^/:;]+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Connection:
    """The value of an app setting: a connection string, or a namespace that an Azure identity opens."""

    name: str
    connection_string: str | None = None
    fully_qualified_namespace: str | None = None

    @property
    def host_name(self) -> str:
        """Return the host name of the namespace, without a port."""
        if self.fully_qualified_namespace is not None:
            return self.fully_qualified_namespace
        match = _ENDPOINT.search(self.connection_string or "")
        return "" if match is None else match[1]

    def __repr__(self) -> str:
        """Show the name of the app setting and hide its value."""
        return f"Connection({self.name!r})"
