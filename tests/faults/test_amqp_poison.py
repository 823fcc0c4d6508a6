"""A message that makes an AMQP broker close the connection, through a task with its journal and rejects."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from busway_broker.config import QueueConfig
from busway_broker.thread import RunningBroker
from shared.line import rejection
from shared.message.message import Message
from tests.azurite import running_azurite
from tests.end_to_end.journal_app import CONNECTIONS, EAST, WEST, App
from tests.messages import ORIGIN
from tests.wire.answering_broker import ACCEPTED, CLOSE, AnsweringBroker

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def answering(broker: AnsweringBroker) -> Iterator[str]:
    """Yield the URL of a broker that answers in a thread."""
    loop, running = asyncio.new_event_loop(), broker.running()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(running.__aenter__(), loop).result(20)
        asyncio.run_coroutine_threadsafe(running.__aexit__(None, None, None), loop).result(20)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


TO_PLANT = """
task: to-plant
source: {connection: west, queue: work, sessions: true}
routes: [{target: {connection: plant, queue: work}}]
rejects: {connection: east, queue: rejected}
"""


def test_a_message_that_makes_an_amqp_broker_close_the_connection_is_rejected_alone(tmp_path: Path) -> None:
    plant = AnsweringBroker(lambda _number, content: CLOSE if b"poison" in content else ACCEPTED)
    work = replace(WEST, queues=(QueueConfig(name="work", requires_session=True),))
    with running_azurite(tmp_path) as storage, RunningBroker([work, EAST]) as broker, answering(plant) as url:
        app = App(storage, tmp_path, broker)
        (tmp_path / "tasks" / "all.yaml").write_text(TO_PLANT)
        (tmp_path / "connections.yaml").write_text(CONNECTIONS + "plant: {kind: amqp, setting: PLANT}\n")
        app.settings["PLANT"] = url
        names = ["a0", "b0", "a1", "a-poison", "b1", "a2", "b2", "a3"]
        app.send("work", *(ServiceBusMessage(name, message_id=name, session_id=name[0]) for name in names))
        with app.client, app.host:
            app.host.wait_until_ready()
            decided = app.wait_for("to-plant", "target", len(names), observer="task")
            app.host.wait_for(lambda: not broker.counts("west")["work"].active)
            assert app.host.stop() == 0
        assert broker.counts("west")["work"].dead_lettered == 0
        with (
            ServiceBusClient.from_connection_string(app.settings["EAST"]) as client,
            client.get_queue_receiver("rejected") as receiver,
        ):
            (rejected,) = receiver.receive_messages(10, max_wait_time=20)
    assert rejected.message_id == "a-poison"
    found: dict[Any, Any] = rejected.application_properties or {}
    properties = {name.decode(): value.decode() for name, value in found.items()}
    assert properties[rejection.REASON] == "TargetRefusedMessage"
    assert "plant/work: the broker closes the connection because of it" in properties[rejection.DESCRIPTION]
    outcomes = [each["outcome"] for each in sorted(decided, key=lambda each: int(each["src_seq"]))]
    assert outcomes == ["rejected" if "poison" in name else "sent" for name in names]
    accepted = [Message.received(each, ORIGIN) for each in plant.contents if b"poison" not in each]
    # A message that was in flight at a break may be there twice.
    arrived = list(dict.fromkeys(str(each.message_id.payload) for each in accepted if each.message_id is not None))
    assert sorted(arrived) == sorted(set(names) - {"a-poison"})
    for session in "ab":
        assert [each for each in arrived if each[0] == session] == [
            each for each in names if each[0] == session and "poison" not in each
        ]
