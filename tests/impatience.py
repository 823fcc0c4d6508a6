"""The SDKs with shorter pauses, for tests that open many links."""

import asyncio
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from azure.eventhub import _client_base
from azure.eventhub._pyamqp import client as event_hubs
from azure.eventhub._pyamqp.aio import _client_async as event_hubs_aio
from azure.servicebus import _servicebus_receiver, _servicebus_sender
from azure.servicebus._pyamqp import client as service_bus
from azure.servicebus._pyamqp.aio import _client_async as service_bus_aio
from azure.servicebus.aio import _session_browser_async


@contextmanager
def impatient_clients() -> Iterator[None]:
    """
    Make the SDKs check more often whether a link is open, and close at once.

    They sleep for 50 ms between two checks, and wait up to a second for their keep-alive thread on close: minutes for
    two hundred links. Nothing on the wire differs. There is no public way (azure-servicebus 7.15.0, azure-eventhub
    5.15.1):

    - The 50 ms are literals: `_servicebus_sender.py` line 279, `_servicebus_receiver.py` line 380, and lines 427 and
      547 of `_client_base.py` of Event Hubs, and line 95 of `aio/_session_browser_async.py`. `retry_total`,
      `socket_timeout` and the other options do not change them.
    - `get_queue_sender(…, keep_alive=0)` makes senders without that thread, which sleeps for a second
      (`_pyamqp/client.py` line 255). A receiver without prefetch always has one (`_servicebus_receiver.py` line 347).
    - A proxy on the wire cannot shorten a sleep of the client.
    """
    impatient = types.SimpleNamespace(**vars(time))
    impatient.sleep = lambda seconds: time.sleep(min(seconds, 0.002))
    impatient_loop = types.SimpleNamespace(**vars(asyncio))
    impatient_loop.sleep = lambda seconds: asyncio.sleep(min(seconds, 0.002))

    async def nothing(_: object) -> None:
        pass

    with pytest.MonkeyPatch.context() as patch:
        for module in (service_bus, _servicebus_sender, _servicebus_receiver, event_hubs, _client_base):
            patch.setattr(module, "time", impatient)
        patch.setattr(_session_browser_async, "asyncio", impatient_loop)
        for client in (service_bus.AMQPClient, event_hubs.AMQPClient):
            patch.setattr(client, "_keep_alive", lambda _: None)
        for client in (service_bus_aio.AMQPClientAsync, event_hubs_aio.AMQPClientAsync):
            patch.setattr(client, "_keep_alive_async", nothing)
        yield
