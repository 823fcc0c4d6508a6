"""Hubs with geo-replication, as azure-eventhub and @azure/event-hubs see them."""

import json
import urllib.request
from typing import Any

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, EventHubProducerClient
from azure.eventhub.exceptions import EventHubError
from hypothesis import given
from hypothesis import strategies as st

from broker.tests.javascript_client import run_script
from broker.tests.reading_events import read_events
from busway_broker.admin.thread import RunningAdmin
from busway_broker.config import HubConfig, NamespaceConfig
from busway_broker.core.event import Event, EventContent
from busway_broker.core.hub import sequence_number_in
from busway_broker.thread import RunningBroker

INVALID_OFFSET = "com.microsoft:georeplication:invalid-offset"


NAMESPACES = [
    NamespaceConfig(name="geo", hubs=(HubConfig(name="h"),), geo_replicated=True),
    NamespaceConfig(name="plain", hubs=(HubConfig(name="h"),)),
]


def send(broker: RunningBroker, namespace: str, *bodies: str) -> None:
    with EventHubProducerClient.from_connection_string(
        broker.connection_string(namespace), eventhub_name="h"
    ) as producer:
        producer.send_batch([EventData(body) for body in bodies])


def read(broker: RunningBroker, namespace: str, count: int, **position: Any) -> list[EventData]:
    options: dict[str, Any] = {"partition_id": "0", "track_last_enqueued_event_properties": True} | position
    return [event for _, event in read_events(broker.connection_string(namespace), "h", count, **options)]


def test_an_offset_is_a_text_that_a_reader_can_start_at(broker: RunningBroker) -> None:
    send(broker, "geo", "a", "b", "c")
    first, second, third = read(broker, "geo", 3, starting_position="-1")
    offsets = [first.offset, second.offset, third.offset]
    assert not any(str(offset).isdigit() for offset in offsets)
    assert [each.body_as_str() for each in read(broker, "geo", 2, starting_position=first.offset)] == ["b", "c"]
    (again,) = read(broker, "geo", 1, starting_position=third.offset, starting_position_inclusive=True)
    assert (again.body_as_str(), again.sequence_number) == ("c", third.sequence_number)


def test_the_last_offset_is_a_text_for_readers_and_none_to_start_at_for_others(broker: RunningBroker) -> None:
    send(broker, "geo", "a")
    with EventHubConsumerClient.from_connection_string(
        broker.connection_string("geo"), "$Default", eventhub_name="h"
    ) as consumer:
        last = consumer.get_partition_properties("0")["last_enqueued_offset"]
    assert last == "0"
    with pytest.raises(EventHubError, match=INVALID_OFFSET):
        read(broker, "geo", 1, starting_position=last)


def test_a_checkpoint_of_before_the_replication_is_refused_after_the_failover(broker: RunningBroker) -> None:
    send(broker, "plain", "a", "b")
    first, _ = read(broker, "plain", 2, starting_position="-1")
    assert first.offset == "0"
    assert broker.faults("plain").fail_over() == 2
    with pytest.raises(EventHubError, match=INVALID_OFFSET):
        read(broker, "plain", 1, starting_position=first.offset)
    # What Microsoft's processors then do: by number, or from the beginning.
    (second,) = read(broker, "plain", 1, starting_position=first.sequence_number)
    assert second.body_as_str() == "b"
    assert [each.body_as_str() for each in read(broker, "plain", 2, starting_position="-1")] == ["a", "b"]


def test_a_text_of_before_the_failover_is_good_after_it(broker: RunningBroker) -> None:
    send(broker, "geo", "a", "b")
    first, _ = read(broker, "geo", 2, starting_position="-1")
    with RunningAdmin(broker) as admin:
        request = urllib.request.Request(  # noqa: S310 - the address of this test's own server
            f"{admin.address('geo')}/$busway/failover", data=b"", headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - likewise
            assert (answer.status, json.load(answer)) == (200, {"region": 2})
    (second,) = read(broker, "geo", 1, starting_position=first.offset)
    assert second.body_as_str() == "b"
    assert str(second.offset).startswith("2:")


def test_javascript_reads_from_texts_and_sees_the_error(broker: RunningBroker) -> None:
    run_script("geo_replication", broker.connection_string("geo"), package="event-hubs")


@given(st.integers(0, 2**40), st.integers(0, 2**40), st.integers(1, 1000))
def test_the_sequence_number_is_found_in_every_offset(number: int, offset: int, region: int) -> None:
    event = Event(EventContent(b"", 0, b"", None), number, offset, 0)
    assert sequence_number_in(event.offset_in(region)) == number
    assert sequence_number_in(event.offset_in(None)) is None
