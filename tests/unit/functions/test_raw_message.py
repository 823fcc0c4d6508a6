"""The converter of the raw SDK type, called as Microsoft's worker library calls it."""

import uuid
from typing import Any

import pytest
from azure_functions_runtime.bindings import meta

from functions.raw_message import EVENT_HUBS_SOURCE, SERVICE_BUS_SOURCE, RawMessage
from host.protos import CollectionModelBindingData, ModelBindingData, ParameterBinding, TypedData
from tests.messages import delivered

TOKEN = uuid.uuid4().bytes_le
CONTENT = delivered(1)


def decoded(binding: str, data: TypedData, metadata: dict[str, TypedData] | None = None) -> Any:
    meta.load_binding_registry()
    return meta.from_incoming_proto(
        binding,
        ParameterBinding("messages", data),
        pytype=list[RawMessage],
        trigger_metadata=metadata,
        function_name="copy",
        is_deferred_binding=True,
    )


def many(source: str, *contents: bytes) -> TypedData:
    items = [ModelBindingData("1.0", source, "application/octet-stream", content) for content in contents]
    return TypedData(collection_model_binding_data=CollectionModelBindingData(items))


def test_the_worker_knows_the_type_for_both_triggers() -> None:
    meta.load_binding_registry()
    for binding in ("serviceBusTrigger", "eventHubTrigger"):
        for annotation in (RawMessage, list[RawMessage]):
            assert meta.check_input_type_annotation(binding, annotation, is_deferred_binding=True)
        assert not meta.check_input_type_annotation(binding, str, is_deferred_binding=True)


def test_messages_of_service_bus_come_without_their_lock_token() -> None:
    messages = decoded("serviceBusTrigger", many(SERVICE_BUS_SOURCE, TOKEN + CONTENT, TOKEN))
    assert [(message.content, message.partition) for message in messages] == [(CONTENT, None), (b"", None)]
    assert all(message.get_sdk_type() is message for message in messages)


def test_one_message_of_service_bus() -> None:
    item = ModelBindingData("1.0", SERVICE_BUS_SOURCE, "application/octet-stream", TOKEN + CONTENT)
    assert decoded("serviceBusTrigger", TypedData(model_binding_data=item)).content == CONTENT


@pytest.mark.parametrize(
    ("context", "partition"),
    [
        (TypedData(json='{"PartitionId":"3","ConsumerGroup":"$Default"}'), "3"),
        (TypedData(string='{"PartitionId":0}'), "0"),
        (TypedData(json="{}"), None),
        (None, None),
    ],
)
def test_events_come_whole_and_with_their_partition(context: TypedData | None, partition: str | None) -> None:
    metadata = {} if context is None else {"PartitionContext": context}
    messages = decoded("eventHubTrigger", many(EVENT_HUBS_SOURCE, CONTENT, CONTENT), metadata)
    assert [(message.content, message.partition) for message in messages] == [(CONTENT, partition)] * 2


def test_unknown_source_is_reported() -> None:
    with pytest.raises(ValueError, match="SomeoneElse"):
        decoded("serviceBusTrigger", many("SomeoneElse", CONTENT))


def test_host_without_sdk_types_gets_a_hint() -> None:
    with pytest.raises(ValueError, match="no SDK types"):
        decoded("serviceBusTrigger", TypedData(string="text"))
