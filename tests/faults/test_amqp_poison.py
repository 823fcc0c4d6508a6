"""A message that makes an AMQP broker close the connection, through a task with its journal and rejects."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from shared.line import rejection
from shared.message.message import Message
from tests.azurite import running_azurite
from tests.end_to_end.journal_app import JournalSite
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


ENTITIES = "{west: {queues: {work: {requires_session: true}}}, east: {queues: [rejected]}}"
TO_PLANT = """
task: to-plant
source: {connection: west, queue: work, sessions: true}
routes: [{target: {connection: plant, queue: work}}]
rejects: {connection: east, queue: rejected}
"""


def test_a_message_that_makes_an_amqp_broker_close_the_connection_is_rejected_alone(tmp_path: Path) -> None:
    plant = AnsweringBroker(lambda _number, content: CLOSE if b"poison" in content else ACCEPTED)
    names = ["a0", "b0", "a1", "a-poison", "b1", "a2", "b2", "a3"]
    with running_azurite(tmp_path) as storage, answering(plant) as url:
        more = "plant: {kind: amqp, setting: PLANT}"
        with (
            JournalSite(tmp_path, storage, ENTITIES, TO_PLANT, more=more, settings={"PLANT": url}) as site,
            site.blobs,
            site.process,
        ):
            site.process.wait_until_ready()
            site.send("west/work", *(ServiceBusMessage(name, message_id=name, session_id=name[0]) for name in names))
            decided = site.wait_for("to-plant", "target", len(names), observer="task")
            site.process.wait_for(lambda: not site.active("west/work"))
            assert site.process.stop() == 0
            assert site.broker.counts("west")["work"].dead_lettered == 0
            (rejected,) = site.take("east/rejected", site.active("east/rejected"))
    assert rejected.message_id == "a-poison"
    found: dict[Any, Any] = rejected.application_properties or {}
    properties = {name.decode(): value.decode() for name, value in found.items()}
    assert properties[rejection.REASON] == "TargetRefusedMessage"
    assert "plant/work: the broker closes the connection because of it" in properties[rejection.DESCRIPTION]
    outcomes = [each["outcome"] for each in sorted(decided, key=lambda each: int(each["src_seq"]))]
    assert outcomes == ["rejected" if "poison" in name else "sent" for name in names]
    accepted = [Message.received(content, ORIGIN) for content in plant.contents if b"poison" not in content]
    # A message that was in flight at a break may be there twice.
    arrived = list(
        dict.fromkeys(str(message.message_id.payload) for message in accepted if message.message_id is not None)
    )
    assert sorted(arrived) == sorted(set(names) - {"a-poison"})
    for session in "ab":
        assert [each for each in arrived if each[0] == session] == [
            name for name in names if name[0] == session and "poison" not in name
        ]
