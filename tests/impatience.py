"""The SDKs with shorter pauses, for tests that open many links."""

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


@contextmanager
def impatient_clients() -> Iterator[None]:
    """
    Make the SDKs check more often whether a link is open, and close at once.

    They sleep for 50 ms between two checks, and wait up to a second for their keep-alive thread on close: minutes for
    two hundred links. The SDKs have no option for either. Nothing on the wire differs.
    """
    impatient = types.SimpleNamespace(**vars(time))
    impatient.sleep = lambda seconds: time.sleep(min(seconds, 0.002))

    async def nothing(_: object) -> None:
        pass

    with pytest.MonkeyPatch.context() as patch:
        for module in (service_bus, _servicebus_sender, _servicebus_receiver, event_hubs, _client_base):
            patch.setattr(module, "time", impatient)
        for client in (service_bus.AMQPClient, event_hubs.AMQPClient):
            patch.setattr(client, "_keep_alive", lambda _: None)
        for client in (service_bus_aio.AMQPClientAsync, event_hubs_aio.AMQPClientAsync):
            patch.setattr(client, "_keep_alive_async", nothing)
        yield
