"""
Output bindings of Event Hubs: sent after the function has returned, before its source is settled.

Bytes are one event. Text is one event, unless it is a JSON array: then each item is one. A list set in Python arrives
as such an array. Source: FunctionBinding.ReadAsEnumerable of Azure/azure-functions-host, EventHubAsyncCollector.
"""

import json
from typing import Any

from azure.core.exceptions import AzureError
from azure.eventhub import EventData
from azure.eventhub.aio import EventHubProducerClient
from azure.identity.aio import DefaultAzureCredential

from local.host.protos import ParameterBinding, TypedData
from local.host.settings import Settings
from local.host.worker import Function

EVENT_HUB = "eventHub"


class EventHubOutputs:
    """The hubs that the functions of an app send to; each client is opened with its first event."""

    def __init__(self, settings: Settings) -> None:
        """Resolve connections and names by *settings*."""
        self._settings = settings
        self._clients: dict[tuple[str, str], EventHubProducerClient] = {}

    async def send(self, function: Function, output: ParameterBinding) -> str | None:
        """Send the value of *output* to the hub of its binding; return the error, None if it was sent."""
        binding, data = function.outputs[output.name], output.data or TypedData()
        try:
            producer = self._client(function, binding)
            for body in bodies(data.kind, data.data):
                await producer.send_batch([EventData(body)])
        except (AzureError, OSError, ValueError) as error:
            return f"output {output.name}: {type(error).__name__}"
        return None

    async def close(self) -> None:
        """Close the clients."""
        for client in self._clients.values():
            await client.close()

    def _client(self, function: Function, binding: Any) -> EventHubProducerClient:
        path = f"{function.name}.{binding['name']}"
        hub = self._settings.resolve(str(binding["eventHubName"]), f"{path}.eventHubName")
        connection = self._settings.connection(str(binding["connection"]), f"{path}.connection")
        key = connection.name, hub
        if key not in self._clients:
            if connection.connection_string is not None:
                client = EventHubProducerClient.from_connection_string(connection.connection_string, eventhub_name=hub)
            else:
                namespace = str(connection.fully_qualified_namespace)
                client = EventHubProducerClient(namespace, hub, DefaultAzureCredential())
            self._clients[key] = client
        return self._clients[key]


def bodies(kind: str | None, value: Any) -> list[bytes]:
    """Return the bodies of the events in a value of the worker."""
    if kind == "bytes":
        return [bytes(value)]
    text = str(value)
    if kind == "json" or text.lstrip().startswith("["):
        try:
            items = json.loads(text)
        except ValueError:
            return [text.encode()]
        if isinstance(items, list):
            return [
                (item if isinstance(item, str) else json.dumps(item, separators=(",", ":"))).encode() for item in items
            ]
    return [text.encode()]
