"""When a run of the de-duplicating receiver ends, and which faults end it."""

import re
import socket
import threading
import time
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway_clients import Claim, DeduplicatingReceiver, Handled, MemoryStore, WrongUse
from busway_clients.receivers.messages import PATIENCE
from tests.clients.applications import Application
from tests.clients.receivers.consuming import Effects, consume, send_to_both
from tests.clients.site import Site, both_kinds
from tests.site import until


def test_run_ends_when_all_namespaces_are_idle(sync_site: Site) -> None:
    entity = sync_site.queue()
    with Application("sync", sync_site.places) as application:
        senders = application.senders(entity)
        seen = []

        def slowly(message: Any) -> None:
            seen.append(str(message))
            time.sleep(0.3)
            if len(seen) < 5:
                senders["west"].send_messages(ServiceBusMessage(f"{len(seen)}"))
            elif len(seen) == 5:
                senders["east"].send_messages(ServiceBusMessage("at last"))

        senders["west"].send_messages(ServiceBusMessage("0"))
        receiver = DeduplicatingReceiver(application.receivers(entity), MemoryStore())
        receiver.run(slowly, threading.Event(), idle=0.5)
    assert seen == ["0", "1", "2", "3", "4", "at last"]


@pytest.mark.parametrize("ends_by", ["idle", "stop"])
@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_silent_peer_does_not_block_the_end_of_a_run(sync_site: Site, kind: str, ends_by: str) -> None:
    entity = sync_site.queue()
    effects, idle = Effects(), 0.5 if ends_by == "idle" else None
    mute = socket.create_server(("127.0.0.1", 0))
    east = re.sub(r":\d+", f":{mute.getsockname()[1]}", sync_site.places["east"])
    with Application(kind, sync_site.places | {"east": east}) as application:
        with ServiceBusClient.from_connection_string(sync_site.places["west"]) as client:
            client.get_queue_sender(entity).send_messages(ServiceBusMessage("x"))
        receivers = application.receivers(entity)
        receiver = application.classes.DeduplicatingReceiver(receivers, MemoryStore(), open_seconds=2.0)
        stop = application.event()

        def work(message: Any) -> None:
            effects(message)
            if ends_by == "stop":
                stop.set()

        application.call(receiver.run(application.function(work), stop, idle=idle))
        mute.close()
    assert effects.done == {"x": 1}


@both_kinds
def test_waiting_copy_does_not_block_the_end_of_a_run(site: Site) -> None:
    entity = site.queue()
    store = MemoryStore()
    assert isinstance(store.claim("m", time.time()), Claim)
    site.call(site.passive(entity).send(ServiceBusMessage("x", message_id="m")))
    receiver = site.classes.DeduplicatingReceiver(site.receivers(entity), store)
    stop = site.event()
    effects = Effects()

    def stop_it() -> None:
        until(lambda: site.locked("west", entity))
        site.set(stop)

    stopping = threading.Thread(target=stop_it)
    stopping.start()
    began = time.monotonic()
    site.call(receiver.run(site.function(effects), stop, idle=0.5))
    stopping.join()
    assert time.monotonic() - began < PATIENCE.total_seconds() / 2
    assert receiver.counts["west"] == {Handled.BUSY: 1}
    assert site.ids("west", entity) == ["m"]


@both_kinds
@pytest.mark.parametrize(
    ("kind_of_queue", "expected"), [("sessions", "amqp:not-allowed"), ("missing", "MessagingEntityNotFoundError")]
)
def test_missing_entity_or_session_is_reported(site: Site, kind_of_queue: str, expected: str) -> None:
    entity = site.queue(kind_of_queue) if kind_of_queue == "sessions" else kind_of_queue
    receivers = {**site.receivers(site.queue()), "east": site.receivers(entity)["east"]}
    receiver = site.classes.DeduplicatingReceiver(receivers, MemoryStore())
    stop = site.event()
    effects = Effects()
    with pytest.raises(WrongUse, match=rf"the receiver of east: .*{expected}"):
        site.call(receiver.run(site.function(effects), stop, idle=0.5))


@both_kinds
def test_an_unavailable_namespace_does_not_stop_the_other(site: Site) -> None:
    entity = site.queue()
    send_to_both(site, entity, [ServiceBusMessage("a"), ServiceBusMessage("b")])
    site.go_down("west")
    effects, store = Effects(), MemoryStore()
    receiver = consume(site, entity, effects, store=store)
    assert effects.done == {"a": 1, "b": 1}
    assert receiver.errors["west"] is not None
    site.come_up("west")
    consume(site, entity, effects, store=store)
    assert effects.done == {"a": 1, "b": 1}
    assert site.ids("west", entity) == []
