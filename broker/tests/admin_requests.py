"""Requests to the administration of a namespace, over plain HTTP, and fixtures for modules that have NAMESPACES."""

import http.client
import json
from typing import Any

from busway_broker.config import HubConfig, NamespaceConfig, QueueConfig, SubscriptionConfig, TopicConfig

WEST = NamespaceConfig(
    name="west",
    queues=(QueueConfig(name="orders"),),
    topics=(TopicConfig(name="events", subscriptions=(SubscriptionConfig(name="all"),)),),
    hubs=(HubConfig(name="hub", partition_count=2),),
)


class AdminRequests:
    """A client that sends exactly what a test wants, on a new connection each time."""

    def __init__(self, address: str) -> None:
        self.address = address

    def text(self, method: str, path: str, body: str | bytes | None = None, **headers: str) -> tuple[int, str]:
        """Return the status and the text of an answer."""
        connection = http.client.HTTPConnection(self.address.removeprefix("http://"), timeout=10)
        try:
            connection.request(method, path, body.encode() if isinstance(body, str) else body, headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def json(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """Send a request to the JSON API."""
        text = None if body is None else json.dumps(body)
        status, answer = self.text(method, f"/$busway/{path}", text, **{"Content-Type": "application/json"}, **headers)
        return status, json.loads(answer)
