"""Reading with checkpoints in a blob container, on Azurite: who comes later goes on where the last one stopped."""

import threading
import uuid
from collections.abc import Callable, Iterator

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient, PartitionContext
from azure.eventhub.extensions.checkpointstoreblob import BlobCheckpointStore

from busway_broker.config import HubConfig, NamespaceConfig
from busway_broker.thread import RunningBroker
from tests.azurite import blob_account

PARTITIONS = 4


@pytest.fixture(scope="module")
def storage() -> str:
    return blob_account()


@pytest.fixture
def hub() -> Iterator[str]:
    hub = HubConfig(name="events", partition_count=PARTITIONS)
    with RunningBroker([NamespaceConfig(name="hubs", hubs=(hub,))]) as broker:
        yield broker.connection_string("hubs")


@pytest.fixture
def consume(hub: str, storage: str) -> Callable[[int], list[str]]:
    container = f"checkpoints-{uuid.uuid4().hex}"
    BlobCheckpointStore.from_connection_string(storage, container)._container_client.create_container()

    def read(count: int) -> list[str]:
        """Read *count* events by claiming partitions, with a checkpoint after each."""
        store = BlobCheckpointStore.from_connection_string(storage, container)
        consumer = EventHubConsumerClient.from_connection_string(
            hub, consumer_group="$Default", eventhub_name="events", checkpoint_store=store, load_balancing_interval=0.2
        )
        bodies: list[str] = []
        done = threading.Event()

        def on_event(context: PartitionContext, event: EventData | None) -> None:
            if event is None:
                return
            bodies.append(event.body_as_str())
            context.update_checkpoint(event)
            if len(bodies) >= count:
                done.set()

        thread = threading.Thread(target=lambda: consumer.receive(on_event, starting_position="-1", max_wait_time=1))
        thread.start()
        done.wait(20)
        consumer.close()
        thread.join(20)
        store.close()
        return sorted(bodies)

    return read


def send(hub: str, bodies: list[str]) -> None:
    with EventHubProducerClient.from_connection_string(hub, eventhub_name="events") as producer:
        for number, body in enumerate(bodies):
            producer.send_batch([EventData(body)], partition_id=str(number % PARTITIONS))


def test_reading_continues_after_the_last_checkpoint(hub: str, consume: Callable[[int], list[str]]) -> None:
    send(hub, [f"a{number}" for number in range(8)])
    assert consume(8) == [f"a{number}" for number in range(8)]
    send(hub, [f"b{number}" for number in range(8)])
    assert consume(8) == [f"b{number}" for number in range(8)]
