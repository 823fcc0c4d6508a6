"""The broker in a container, for Testcontainers; it needs the extra testcontainers, and Docker."""

from typing import Any, Self

from testcontainers.core.container import DockerContainer
from testcontainers.core.waiting_utils import wait_for_logs

from busway_broker.config import NamespaceConfig
from busway_broker.connection_string import connection_string
from busway_broker.process import DEFAULT_ADMIN_PORT, DEFAULT_PORT

IMAGE = "busway-broker"
"""The image that broker/Containerfile makes."""


class BuswayBrokerContainer(DockerContainer):  # type: ignore[misc]  # development has no package testcontainers
    """
    A container with a Service Bus and an Event Hubs namespace, whose entities are created at their first use.

    Other arguments are those of DockerContainer; `with_command` replaces the options of `busway-broker`.
    """

    def __init__(self, image: str = IMAGE, **options: Any) -> None:  # noqa: ANN401 - those of the base class
        """Describe a container of *image*."""
        super().__init__(image, **options)
        ports = (DEFAULT_PORT, DEFAULT_ADMIN_PORT)
        self.with_exposed_ports(*(first + index for first in ports for index in range(2)))

    def start(self) -> Self:
        """Start the container, and return it once clients may connect."""
        super().start()
        wait_for_logs(self, "ready event-hubs")
        return self

    @property
    def service_bus(self) -> str:
        """The connection string of the Service Bus namespace."""
        return self._connection_string(0)

    @property
    def event_hubs(self) -> str:
        """The connection string of the Event Hubs namespace."""
        return self._connection_string(1)

    @property
    def administration(self) -> str:
        """The address of the Service Bus namespace's administration and of its JSON API."""
        return f"http://{self.get_container_host_ip()}:{self.get_exposed_port(DEFAULT_ADMIN_PORT)}"

    def _connection_string(self, index: int) -> str:
        port = int(self.get_exposed_port(DEFAULT_PORT + index))
        return connection_string(self.get_container_host_ip(), port, NamespaceConfig(name="container"))
