import json
from types import MappingProxyType
from typing import Any

import pytest

from host.dotnet_values import CannotBind, CannotReceive
from host.worker import Function
from host.worker_input import event_hubs_input, service_bus_input
from shared.amqp import values
from shared.amqp.codec import encode
from shared.ends.azure_amqp.raw_link import Delivery

TAG = bytes(range(16))
NOW = 1_800_000_000_000


def function(*, many: bool = True) -> Function:
    trigger: dict[str, Any] = {"type": "serviceBusTrigger", "name": "m"}
    if many:
        trigger["cardinality"] = "MANY"
    return Function("id", "f", MappingProxyType(trigger), {}, None)


def delivery_of(application_properties: Any = ()) -> Delivery:
    parts = [b"\x00\x53\x70" + encode(values.list_([values.NULL] * 4 + [values.uint(1)]))]
    if application_properties:
        parts.append(b"\x00\x53\x74" + encode(values.map_(application_properties)))
    return Delivery(0, TAG, b"".join(parts) + b"\x00\x53\x75\xa0\x04body")


def test_sdk_type_gets_token_and_message_and_on_the_wire_its_very_bytes() -> None:
    delivery = delivery_of()
    data, metadata = service_bus_input(function(), [delivery], NOW, wire=True)
    (one,) = data.collection_model_binding_data.model_binding_data
    assert (one.version, one.source, one.content_type) == (
        "1.0",
        "AzureServiceBusReceivedMessage",
        "application/octet-stream",
    )
    assert one.content == TAG + delivery.payload
    assert metadata == {}
    data, _ = service_bus_input(function(many=False), [delivery], NOW, wire=False)
    assert data.model_binding_data.content[:16] == TAG
    assert data.model_binding_data.content[16:] != delivery.payload


def test_sdk_type_of_an_event_gets_no_token_but_the_partition() -> None:
    delivery = delivery_of()
    data, metadata = event_hubs_input(function(), [delivery], NOW, {"PartitionId": "3"}, wire=True)
    (one,) = data.collection_model_binding_data.model_binding_data
    assert (one.source, one.content) == ("AzureEventHubsEventData", delivery.payload)
    assert json.loads(metadata["PartitionContext"].json) == {"PartitionId": "3"}


def test_a_batch_with_a_message_that_cannot_be_read_fails_to_be_received() -> None:
    no_bind = delivery_of(application_properties=[(values.string("b"), values.binary(b"b"))])
    no_receive = delivery_of(application_properties=[(values.string("m"), values.map_([]))])
    with pytest.raises(CannotBind):
        service_bus_input(function(), [no_bind], NOW, wire=False)
    with pytest.raises(CannotReceive):
        service_bus_input(function(), [no_bind, no_receive], NOW, wire=False)
