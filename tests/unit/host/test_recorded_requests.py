"""
The local host's input equals the requests that the real Functions host sent to its Python worker.

recorded/real-host-requests.json has requests of host 4.1037 for functions with SDK types, and the messages that led to
them, in protobuf JSON.
"""

import base64
import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from host.protos import ModelBindingData, TypedData
from host.worker import Function
from host.worker_input import Input, event_hubs_input, receiver_metadata, service_bus_input
from shared.ends.azure_amqp.raw_link import Delivery

_RECORDED = json.loads((Path(__file__).parent / "recorded" / "real-host-requests.json").read_text())
CASES = [pytest.param(case, id=f"{case['case']}-{number}") for number, case in enumerate(_RECORDED["cases"])]
(BATCHES,) = [value for name, value in _RECORDED.items() if name.startswith("batches")]

NOW = 1_767_323_045_678
# The listener was a stand-in that handed over messages: it had no client of the SDK.
_STAND_IN = receiver_metadata("127.0.0.1", "stand-in", None)


def as_json(data: TypedData) -> dict[str, Any]:
    """Return a value as protobuf writes it in JSON."""
    value = data.data
    match data.kind:
        case "json":
            return {"json": value}
        case "model_binding_data":
            return {"modelBindingData": _binding_data(value)}
        case "collection_model_binding_data":
            items = [_binding_data(one) for one in value.model_binding_data]
            return {"collectionModelBindingData": {"modelBindingData": items}}
        case kind:
            raise AssertionError(kind)


def _binding_data(data: ModelBindingData) -> dict[str, str]:
    content = base64.b64encode(data.content).decode()
    return {"version": data.version, "source": data.source, "contentType": data.content_type, "content": content}


def function(binding: Mapping[str, Any], *, is_many: bool) -> Function:
    trigger: dict[str, Any] = {"type": "serviceBusTrigger", "name": binding["name"]}
    if is_many:
        trigger["cardinality"] = "MANY"
    return Function("id", "f", MappingProxyType(trigger), {}, None)


def delivered(sent: Mapping[str, Any]) -> Delivery:
    """Return a message as the listener handed it over."""
    tag = uuid.UUID(sent["lockToken"]).bytes_le if "lockToken" in sent else b""
    return Delivery(0, tag, base64.b64decode(sent["amqp"]))


def request_of(case: Mapping[str, Any]) -> Any:
    return case["request"]["invocationRequest"]


def repeated(case: Mapping[str, Any], *, wire: bool = False) -> Input:
    """Return this host's input for the messages of a case; *wire* without .NET's conversion of the messages."""
    (binding,) = request_of(case)["inputData"]
    deliveries = [delivered(sent) for sent in case["sent"]]
    metadata = request_of(case)["triggerMetadata"]
    target = function(binding, is_many="SequenceNumberArray" in metadata)
    if "PartitionContext" in metadata:
        partition = json.loads(metadata["PartitionContext"]["json"])
        return event_hubs_input(target, deliveries, NOW, partition, wire=wire)
    return service_bus_input(target, deliveries, NOW, _STAND_IN, wire=wire)


@pytest.mark.parametrize("case", CASES)
def test_data_of_the_parameter_is_the_recorded_one(case: Mapping[str, Any]) -> None:
    # The stand-in handed over the bytes of the messages without the conversion.
    (binding,) = request_of(case)["inputData"]
    assert as_json(repeated(case, wire=True).data) == binding["data"]


def check_metadata(ours: Mapping[str, TypedData], recorded: Mapping[str, Any]) -> None:
    """Check that each metadata is the recorded one; the real host has that of the messages in addition."""
    assert ours
    assert {name: as_json(value) for name, value in ours.items()} == {name: recorded[name] for name in ours}


@pytest.mark.parametrize("case", CASES)
def test_trigger_metadata_is_the_recorded_one(case: Mapping[str, Any]) -> None:
    check_metadata(repeated(case).metadata, request_of(case)["triggerMetadata"])


@pytest.mark.parametrize("batch", BATCHES)
def test_batch_of_a_session_has_the_recorded_metadata(batch: Mapping[str, Any]) -> None:
    # The messages of these two requests are those that the worker got: Busway's own function, sessions, many.
    request = batch["invocationRequest"]
    (binding,) = request["inputData"]
    items = binding["data"]["collectionModelBindingData"]["modelBindingData"]
    contents = [base64.b64decode(item["content"]) for item in items]
    deliveries = [Delivery(0, content[:16], content[16:]) for content in contents]
    recorded = request["triggerMetadata"]
    locked_until = json.loads(recorded["MessageSession"]["json"])["SessionLockedUntil"]
    receiver = receiver_metadata("127.0.0.1", "stand-in", locked_until)
    target = function(binding, is_many=True)
    raw = service_bus_input(target, deliveries, NOW, receiver, wire=True)
    assert as_json(raw.data) == binding["data"]
    check_metadata(service_bus_input(target, deliveries, NOW, receiver, wire=False).metadata, recorded)
