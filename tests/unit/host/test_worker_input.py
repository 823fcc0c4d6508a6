import json
from types import MappingProxyType
from typing import Any

import pytest

from local.host.dotnet_values import CannotBind
from local.host.worker import Function
from local.host.worker_input import event_hubs_input, service_bus_input
from shared.amqp import sections, values
from shared.amqp.codec import encode
from shared.azure.receivers.raw_link import Delivery

TAG = bytes(range(16))
NOW = 1_800_000_000_000


def function(data_type: str = "BINARY", *, many: bool = True, sdk_type: bool = False) -> Function:
    trigger: dict[str, Any] = {"type": "serviceBusTrigger", "name": "m", "dataType": data_type}
    if many:
        trigger["cardinality"] = "MANY"
    if sdk_type:
        trigger["properties"] = {"SupportsDeferredBinding": True}
    return Function("id", "f", MappingProxyType(trigger), {}, None)


def delivery_of(
    body: bytes = b"\x00\x53\x75\xa0\x04body",
    properties: Any = (),
    application_properties: Any = (),
    annotations: Any = (),
) -> Delivery:
    parts = [b"\x00\x53\x70" + encode(values.list_([values.NULL] * 4 + [values.uint(1)]))]
    if annotations:
        parts.append(b"\x00\x53\x72" + encode(values.map_(annotations)))
    if properties:
        fields = dict(properties)
        parts.append(b"\x00\x53\x73" + encode(values.list_([fields.get(index, values.NULL) for index in range(13)])))
    if application_properties:
        parts.append(b"\x00\x53\x74" + encode(values.map_(application_properties)))
    return Delivery(0, TAG, b"".join(parts) + body)


def test_sdk_type_gets_token_and_message_and_on_the_wire_its_very_bytes() -> None:
    delivery = delivery_of()
    data, metadata = service_bus_input(function(sdk_type=True), [delivery], NOW, wire=True)
    (one,) = data.collection_model_binding_data.model_binding_data
    assert (one.version, one.source, one.content_type) == (
        "1.0",
        "AzureServiceBusReceivedMessage",
        "application/octet-stream",
    )
    assert one.content == TAG + delivery.payload
    assert metadata == {}
    data, _ = service_bus_input(function(sdk_type=True, many=False), [delivery], NOW, wire=False)
    assert data.model_binding_data.content[:16] == TAG
    assert data.model_binding_data.content[16:] != delivery.payload


def test_sdk_type_of_an_event_gets_no_token_but_the_partition() -> None:
    delivery = delivery_of()
    data, metadata = event_hubs_input(function(sdk_type=True), [delivery], NOW, {"PartitionId": "3"}, wire=True)
    (one,) = data.collection_model_binding_data.model_binding_data
    assert (one.source, one.content) == ("AzureEventHubsEventData", delivery.payload)
    assert json.loads(metadata["PartitionContext"].json) == {"PartitionId": "3"}


def test_text_arrays_lose_their_empty_entries() -> None:
    deliveries = [delivery_of(properties={5: values.string(one)}.items()) for one in ("", "b")] + [delivery_of()]
    _, metadata = service_bus_input(function(), deliveries, NOW, wire=False)
    assert metadata["CorrelationIdArray"].collection_string.string == ["b"]
    assert metadata["SequenceNumberArray"].collection_sint64.sint64 == [0, 0, 0]
    assert metadata["DeliveryCountArray"].json == "[2,2,2]"
    assert metadata["LockTokenArray"].collection_string.string == ["03020100-0504-0706-0809-0a0b0c0d0e0f"] * 3


def test_metadata_of_one_message_leaves_absent_values_out() -> None:
    annotations = [(values.symbol("x-opt-enqueued-time"), values.timestamp(1_700_000_000_120))]
    delivery = delivery_of(properties={0: values.string("id")}.items(), annotations=annotations)
    _, metadata = service_bus_input(function(many=False), [delivery], NOW, wire=False)
    assert metadata["MessageId"].string == "id"
    assert metadata["EnqueuedTimeUtc"].json == '"2023-11-14T22:13:20.12"'
    assert metadata["ExpiresAtUtc"].json == '"9999-12-31T23:59:59.9999999"'
    assert "CorrelationId" not in metadata


def test_property_types_become_what_json_can_hold() -> None:
    pairs = {
        "nan": values.double(float("nan")),
        "infinity": values.double(float("-inf")),
        "single": values.float32(1.1),
        "bytes": values.binary(b"\x00\xff"),
        "time": values.timestamp(1_700_000_000_123),
        "span": values.described(
            values.symbol("com.microsoft:timespan"), values.long(864_000_000_001 + 36_000_000_000)
        ),
        "decimal": values.decimal128(((6176 - 2) << 113 | 110).to_bytes(16)),
        "none": values.NULL,
        "big": values.ulong(2**64 - 1),
    }
    delivery = delivery_of(application_properties=[(values.string(name), value) for name, value in pairs.items()])
    _, metadata = service_bus_input(function(many=False), [delivery], NOW, wire=False)
    assert json.loads(metadata["ApplicationProperties"].json) == {
        "nan": "NaN",
        "infinity": "-Infinity",
        "single": 1.1,
        "bytes": "AP8=",
        "time": "2023-11-14T22:13:20.123Z",
        "span": "1.01:00:00.0000001",
        "decimal": 1.1,
        "none": None,
        "big": 2**64 - 1,
    }


def body_of(data_type: str, *bodies: bytes, many: bool = True) -> Any:
    data, _ = service_bus_input(function(data_type, many=many), [delivery_of(body) for body in bodies], NOW, wire=False)
    return data


VALUE_TEXT = b"\x00\x53\x77" + encode(values.string("text"))
VALUE_NUMBER = b"\x00\x53\x77" + encode(values.int_(1))


def test_bodies_by_data_type() -> None:
    two = sections.data(b"a") + sections.data(b"\xff")
    assert body_of("BINARY", two, sections.data(b"")).collection_bytes.bytes == [b"a\xff", b""]
    assert body_of("STRING", two, sections.data(b""), VALUE_TEXT).collection_string.string == ["a\ufffd", "text"]
    assert body_of("UNDEFINED", sections.data(b'{"a" : 1}')).json == '[{"a":1}]'
    assert body_of("BINARY", two, many=False).bytes == b"a\xff"
    assert body_of("UNDEFINED", two, many=False).string == "a\ufffd"


@pytest.mark.parametrize(
    ("data_type", "body"),
    [
        ("BINARY", VALUE_TEXT),
        ("BINARY", VALUE_NUMBER),
        ("STRING", VALUE_NUMBER),
        ("UNDEFINED", sections.data(b"no json")),
    ],
)
def test_bodies_that_the_host_cannot_bind(data_type: str, body: bytes) -> None:
    with pytest.raises(CannotBind):
        body_of(data_type, body)


@pytest.mark.parametrize("data_type", ["STRING", "UNDEFINED"])
def test_fields_of_one_json_body_overwrite_the_metadata(data_type: str) -> None:
    text = b'{"messageid": "forged", "n": 1.0, "yes": true, "none": null, "list": [1], "object": {"a": 1}, "id": 5}'
    delivery = delivery_of(sections.data(text), properties={0: values.string("own")}.items())
    _, metadata = service_bus_input(function(data_type, many=False), [delivery], NOW, wire=False)
    assert metadata["MessageId"].string == "forged"
    assert "messageid" not in metadata
    assert (metadata["n"].string, metadata["yes"].string, metadata["id"].string) == ("1", "True", "5")
    assert metadata["object"].json == '{"a":1}'
    assert not {"none", "list"} & metadata.keys()


def test_binary_bodies_and_batches_overwrite_nothing() -> None:
    delivery = delivery_of(sections.data(b'{"MessageId": "forged"}'), properties={0: values.string("own")}.items())
    _, metadata = service_bus_input(function("BINARY", many=False), [delivery], NOW, wire=False)
    assert metadata["MessageId"].string == "own"
    _, metadata = service_bus_input(function("STRING"), [delivery], NOW, wire=False)
    assert metadata["MessageIdArray"].collection_string.string == ["own"]


@pytest.mark.parametrize("text", [b"[1]", b"{no json}", b'{"a": ', b"text"])
def test_other_texts_add_nothing(text: bytes) -> None:
    plain = service_bus_input(function("STRING", many=False), [delivery_of(sections.data(b"x"))], NOW, wire=False)
    odd = service_bus_input(function("STRING", many=False), [delivery_of(sections.data(text))], NOW, wire=False)
    assert odd.metadata.keys() == plain.metadata.keys()


def test_empty_correlation_id_of_one_message_is_an_empty_text() -> None:
    delivery = delivery_of(properties={5: values.string(""), 3: values.string("")}.items())
    _, metadata = service_bus_input(function(many=False), [delivery], NOW, wire=False)
    assert metadata["CorrelationId"].string == ""
    assert "Subject" not in metadata
