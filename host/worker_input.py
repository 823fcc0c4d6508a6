"""
The input that the host passes to the worker: the data of the trigger parameter and the trigger metadata.

1. A function gets ModelBindingData: the lock token and the message as .NET re-encodes it (`dotnet_message`), or with
   `wire` the message as it arrived.
2. The trigger metadata describes the partition or the client. Azure's host adds the fields of each message, decoded:
   they are left out, because a function with an SDK type reads its messages and not those.

Sources: ConvertReceivedMessageToBindingData and ConvertEventDataToBindingData (the extensions for Functions in
Azure/azure-sdk-for-net). tests/unit/host/recorded has requests of the real host, which this module repeats.
"""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from host.dotnet_message import encoded, received
from host.protos import CollectionModelBindingData, ModelBindingData, TypedData
from host.worker import Function
from shared.ends.azure_amqp.raw_link import Delivery

_VERSION = "1.0"
_CONTENT_TYPE = "application/octet-stream"
_SERVICE_BUS_SOURCE = "AzureServiceBusReceivedMessage"
_EVENT_HUBS_SOURCE = "AzureEventHubsEventData"


class Input(NamedTuple):
    """The input of an invocation: the parameter's data and the trigger metadata."""

    data: TypedData
    metadata: dict[str, TypedData]


def service_bus_input(
    function: Function,
    deliveries: Sequence[Delivery],
    now: int,
    receiver: Mapping[str, object] | None = None,
    *,
    wire: bool,
) -> Input:
    """
    Return the input of a function for messages of Service Bus: one, unless the function takes many.

    *receiver* has the trigger metadata that does not describe the messages, see `receiver_metadata`.
    Units: *now* is milliseconds since 1970 UTC.
    Raises: CannotReceive and CannotBind, where Azure's host fails.
    """
    messages = _messages(deliveries, now, wire=wire, delivery_count_offset=1)
    contents = [one.tag + message for one, message in zip(deliveries, messages, strict=True)]
    metadata = {name: json_data(value) for name, value in (receiver or {}).items()}
    return Input(_model_binding_data(function, _SERVICE_BUS_SOURCE, contents), metadata)


def receiver_metadata(namespace: str, identifier: str, locked_until: str | None) -> dict[str, object]:
    """Return the trigger metadata that describes the client and, for a session, the end of its lock."""
    actions = {} if locked_until is None else {"SessionLockedUntil": locked_until}
    names = ("MessageReceiver", "MessageSession", "MessageActions", "SessionActions")
    client = {
        "FullyQualifiedNamespace": namespace,
        "IsClosed": False,
        "TransportType": 0,
        "Identifier": identifier,
    }
    return {"Client": client, "ReceiveActions": {}, **dict.fromkeys(names, actions)}


def event_hubs_input(
    function: Function, deliveries: Sequence[Delivery], now: int, partition: Mapping[str, object], *, wire: bool
) -> Input:
    """Return the input of a function for events; *partition* is the content of the PartitionContext."""
    text = json_data(dict(partition))
    data = _model_binding_data(function, _EVENT_HUBS_SOURCE, _messages(deliveries, now, wire=wire))
    return Input(data, {"PartitionContext": text, "TriggerPartitionContext": text})


def json_data(value: object) -> TypedData:
    """Return *value* as JSON without white space, as the host writes it."""
    return TypedData(json=json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _messages(deliveries: Sequence[Delivery], now: int, *, wire: bool, delivery_count_offset: int = 0) -> list[bytes]:
    if wire:
        return [one.payload for one in deliveries]
    decoded = [received(one.payload) for one in deliveries]  # all before the first is encoded: receiving fails first
    return [encoded(one, now, delivery_count_offset=delivery_count_offset) for one in decoded]


def _model_binding_data(function: Function, source: str, contents: Sequence[bytes]) -> TypedData:
    items = [ModelBindingData(_VERSION, source, _CONTENT_TYPE, content) for content in contents]
    if function.is_many:
        return TypedData(collection_model_binding_data=CollectionModelBindingData(items))
    return TypedData(model_binding_data=items[0])
