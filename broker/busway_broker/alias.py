"""
The alias of two paired namespaces: Azure's geo-disaster recovery, which replicates entities and no messages.

The alias is a name that leads to the primary namespace; here it is a port. A failover lets it lead to the other one.
What is connected stays where it is until its connection ends (azure-sdk-for-net 7164): in a disaster at once, in a
drill when the client is restarted.
"""

from collections.abc import Mapping
from dataclasses import replace

from busway_broker.config import NamespaceConfig
from busway_broker.listener import ByteStream, Listener


class Alias:
    """Passes the connections to one port on to the listener of one of two namespaces."""

    def __init__(self, primary: str, secondary: str, listeners: Mapping[str, Listener]) -> None:
        """Lead to *primary* among *listeners* until `fail_over`."""
        self.primary = primary
        self.secondary = secondary
        self._listeners = listeners

    def connect(self, listener: Listener, *, is_web_socket: bool = False) -> ByteStream:  # noqa: ARG002 - the alias's own
        """Serve a connection as one of the namespace to which the alias leads."""
        primary = self._listeners[self.primary]
        return primary.connect(primary, is_web_socket=is_web_socket)

    def fail_over(self) -> None:
        """Lead to the other namespace. As in Azure, that ends the pairing: the failover has no way back."""
        self.primary, self.secondary = self.secondary, ""


def paired(primary: NamespaceConfig, secondary: NamespaceConfig) -> NamespaceConfig:
    """Return *secondary* with the entities of *primary*: the pairing replicates them."""
    return replace(secondary, queues=primary.queues, topics=primary.topics, hubs=primary.hubs)
