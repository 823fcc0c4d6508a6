"""The status of the queue or subscription that a task takes from."""

from typing import TYPE_CHECKING

from azure.servicebus.management import SubscriptionProperties

from cli.topology.sites import open_client
from shared.ends.service_bus.administration import translating
from shared.tasks.models import Connection
from shared.tasks.source import Source

if TYPE_CHECKING:
    from azure.servicebus.management import QueueProperties, ServiceBusAdministrationClient

ACTIVE = "Active"
PAUSED_FORMS = {ACTIVE: "ReceiveDisabled", "SendDisabled": "Disabled"}
"""The status that delivers nothing, by the one that does."""


class Entity:
    """The queue or subscription of a source, as its administrator sees it."""

    def __init__(self, source: Source, connection: Connection) -> None:
        """Open the administration of its namespace with each call."""
        self._source = source
        self._connection = connection
        self.name = f"{source.connection}/{source.entity}"

    def status(self) -> str:
        """Return its status; raises TargetUnavailable, TargetRefused or ConfigError."""
        with open_client(self._source.connection, self._connection) as client, translating(self.name):
            return _status(self._get(client))

    def change(self, before: str, after: str) -> str:
        """Change its status from *before* to *after*, if that is what it has; return the status that it has then."""
        with open_client(self._source.connection, self._connection) as client, translating(self.name):
            found = self._get(client)
            if _status(found) != before:
                return _status(found)
            found.status = after
            if isinstance(found, SubscriptionProperties):
                client.update_subscription(self._source.topic or "", found)
            else:
                client.update_queue(found)
            return _status(self._get(client))

    def _get(self, client: "ServiceBusAdministrationClient") -> "QueueProperties | SubscriptionProperties":
        if self._source.queue is not None:
            return client.get_queue(self._source.queue)
        return client.get_subscription(self._source.topic or "", self._source.subscription or "")


def _status(properties: "QueueProperties | SubscriptionProperties") -> str:
    return str(getattr(properties.status, "value", properties.status) or ACTIVE)
