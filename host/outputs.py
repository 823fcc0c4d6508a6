"""
Output bindings of Service Bus and Event Hubs: sent after the function has returned, before its source is settled.

1. Only a list of texts arrives as it was set. This host treats every other form as Azure's host does, as far as that is
   known, and warns.
2. Outputs to Service Bus are sent concurrently, and the texts of an output one by one: a text that fails ends its
   output, but not the other outputs. Events are sent after that, and only if no output has failed.
3. Any failure fails the invocation, so its batch is delivered again; what was sent before is sent again.

Source: measurements of the Functions host 4.1037 with the Python worker 4.40.2; docs/decisions/0041.
"""

import asyncio
import json
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

from azure.core.exceptions import AzureError
from azure.eventhub import EventData
from azure.eventhub.aio import EventHubProducerClient
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender

from host.protos import ParameterBinding, TypedData
from host.settings import Settings
from host.worker import EVENT_HUB, SERVICE_BUS, Function
from shared.ends.event_hubs.clients import producer_of
from shared.ends.namespace import Namespace
from shared.ends.service_bus.clients import client_of

_PARENT = "$AzureWebJobsParentId"

_log = logging.getLogger(__name__)


class Bodies(NamedTuple):
    """The bodies to send for a value, and the problem with its form."""

    bodies: list[bytes]
    warning: str | None = None


class NoOutput(ValueError):
    """A value that the host cannot turn into messages; it fails the invocation."""


class Outputs:
    """The entities that the functions of an app send to; each client is opened with its first message."""

    def __init__(self, settings: Settings) -> None:
        """Resolve connections and names by *settings*."""
        self._settings = settings
        self._clients: dict[str, ServiceBusClient] = {}
        self._senders: dict[tuple[str, str], ServiceBusSender] = {}
        self._producers: dict[tuple[str, str], EventHubProducerClient] = {}
        self._opened = AsyncExitStack()
        # Invocations run side by side, and the SDK fails if two of them open one client.
        self._turns: defaultdict[object, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._warned: set[tuple[str, str, str]] = set()

    async def send(self, function: Function, outputs: Sequence[ParameterBinding], parent: str) -> str | None:
        """Send the values of *outputs* of one invocation, whose id is *parent*; return the first error."""
        values = [(function.outputs[output.name], output.data or TypedData()) for output in outputs]
        try:
            found = [(binding, self._bodies(function, binding, data)) for binding, data in values]
        except NoOutput as error:
            return str(error)
        to_queues = [each for each in found if each[0]["type"] == SERVICE_BUS]
        errors = await asyncio.gather(
            *(self._send_messages(function, binding, bodies, parent) for binding, bodies in to_queues)
        )
        failed = next((error for error in errors if error is not None), None)
        for binding, bodies in found:
            if binding["type"] == EVENT_HUB and failed is None:
                failed = await self._send_events(function, binding, bodies)
        return failed

    async def close(self) -> None:
        """Close the clients."""
        await self._opened.aclose()

    def _bodies(self, function: Function, binding: Mapping[str, Any], data: TypedData) -> list[bytes]:
        try:
            made = bodies(binding["type"], data.kind, data.data)
        except NoOutput as error:
            raise NoOutput(f"output {binding['name']}: {error}") from error
        key = (function.name, str(binding["name"]), made.warning or "")
        if made.warning is not None and key not in self._warned:
            self._warned.add(key)
            _log.warning("%s: output %s: %s; set a list of str to send texts unchanged", *key)
        return made.bodies

    async def _send_messages(
        self, function: Function, binding: Mapping[str, Any], found: Sequence[bytes], parent: str
    ) -> str | None:
        try:
            sender = self._sender(function, binding)
            for body in found:
                message = ServiceBusMessage(body, content_type="text/plain", application_properties={_PARENT: parent})
                message.message_id = None  # .NET makes none up
                async with self._turns[sender]:
                    await sender.send_messages(message)
        except (AzureError, OSError, ValueError) as error:
            return f"output {binding['name']}: {type(error).__name__}"
        return None

    async def _send_events(self, function: Function, binding: Mapping[str, Any], found: Sequence[bytes]) -> str | None:
        try:
            producer = self._producer(function, binding)
            async with self._turns[producer]:
                batch = await producer.create_batch()
                for body in found:
                    try:
                        batch.add(EventData(body))
                    except ValueError:
                        await producer.send_batch(batch)
                        batch = await producer.create_batch()
                        batch.add(EventData(body))
                if len(batch):
                    await producer.send_batch(batch)
        except (AzureError, OSError, ValueError) as error:
            return f"output {binding['name']}: {type(error).__name__}"
        return None

    def _entity(self, function: Function, binding: Mapping[str, Any], *names: str) -> tuple[Namespace, str]:
        path = f"{function.name}.{binding['name']}"
        name = next(name for name in names if binding.get(name))
        entity = self._settings.resolve(str(binding[name]), f"{path}.{name}")
        return self._settings.connection(str(binding["connection"]), f"{path}.connection"), entity

    def _sender(self, function: Function, binding: Mapping[str, Any]) -> ServiceBusSender:
        connection, entity = self._entity(function, binding, "queueName", "topicName")
        key = connection.name, entity
        if key not in self._senders:
            if connection.name not in self._clients:
                self._clients[connection.name] = client = client_of(connection, retries=3)
                self._opened.push_async_callback(client.close)
            client = self._clients[connection.name]
            opened = client.get_queue_sender(entity) if binding.get("queueName") else client.get_topic_sender(entity)
            self._opened.push_async_callback(opened.close)
            self._senders[key] = opened
        return self._senders[key]

    def _producer(self, function: Function, binding: Mapping[str, Any]) -> EventHubProducerClient:
        connection, hub = self._entity(function, binding, "eventHubName")
        key = connection.name, hub
        if key not in self._producers:
            self._producers[key] = opened = producer_of(connection, hub, retries=3)
            self._opened.push_async_callback(opened.close)
        return self._producers[key]


def bodies(binding_type: str, kind: str | None, value: Any) -> Bodies:
    """Return the bodies of the messages for a value of the worker; raises NoOutput."""
    if kind == "bytes":
        if binding_type == EVENT_HUB:
            return Bodies([bytes(value)])
        return Bodies([b"System.Byte[]"], "Azure's host sends the text System.Byte[] instead of bytes")
    text = str(value)
    if kind == "json":
        items = _parsed(text)
        if isinstance(items, list):
            is_text = all(isinstance(item, str) for item in items)
            warning = None if is_text else "a list with items that are no str is rewritten as indented JSON"
            return Bodies([_body(item) for item in items], warning)
        return Bodies([_body(items)], "a value that is no str is rewritten as indented JSON")
    trimmed = text.strip()
    if trimmed[:1] + trimmed[-1:] == "{}":
        return Bodies([_body(_parsed(trimmed))], "a text in braces is parsed and written again, indented")
    if trimmed[:1] + trimmed[-1:] == "[]":
        items = _parsed(trimmed)
        return Bodies([_body(item) for item in items], "a text in brackets is split into a message for each item")
    return Bodies([_utf8(text)])


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NoOutput("a text in brackets or braces is no JSON, so nothing is sent") from error


def _body(item: object) -> bytes:
    if item is None:
        return b""
    return _utf8(item if isinstance(item, str) else json.dumps(item, indent=2, ensure_ascii=False))


def _utf8(text: str) -> bytes:
    """Return *text* as .NET encodes it: a lone surrogate becomes the replacement character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
