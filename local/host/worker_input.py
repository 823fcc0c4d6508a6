"""
The input that the host passes to the worker: the data of the trigger parameter and the trigger metadata.

1. A function with an SDK type gets ModelBindingData: the lock token and the message as .NET re-encodes it
   (`dotnet_message`), or with `wire` the message as it arrived.
2. A function with a stock binding gets the body in the binding's data type. If it takes one text, the fields of a JSON
   object in it overwrite the trigger metadata.
3. Both get the fields of the messages as trigger metadata, as arrays for a batch; not with `wire`.
4. Arrays of text lose their empty and missing entries, so that the values of later messages move up to earlier ones.
   That is a defect of the real host with Python (azure-functions-python-worker#1122), kept on purpose.

Sources: Azure/azure-functions-host, src/WebJobs.Script.Grpc/MessageExtensions: GrpcMessageConversionExtensions.cs
(ToRpc, ToRpcStringArray) and ScriptInvocationContextExtensions.cs (null values are skipped);
ServiceBusTriggerBindingStrategy and EventHubTriggerBindingStrategy in Azure/azure-sdk-for-net;
GeneralScriptBindingProvider.GetRequestedType; Utility.ApplyBindingData. tests/unit/host/recorded has requests of the
real host, which this module repeats.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from local.host import newtonsoft
from local.host.dotnet_message import encoded
from local.host.dotnet_values import CannotBind
from local.host.protos import (
    CollectionBytes,
    CollectionModelBindingData,
    CollectionSInt64,
    CollectionString,
    ModelBindingData,
    TypedData,
)
from local.host.received_message import ReceivedMessage
from local.host.worker import Function
from shared.azure.receivers.raw_link import Delivery

_VERSION = "1.0"
_CONTENT_TYPE = "application/octet-stream"
_SERVICE_BUS_SOURCE = "AzureServiceBusReceivedMessage"
_EVENT_HUBS_SOURCE = "AzureEventHubsEventData"

_TO, _SUBJECT, _REPLY_TO, _CORRELATION_ID, _CONTENT, _GROUP_ID, _REPLY_TO_GROUP_ID = 2, 3, 4, 5, 6, 10, 12

type Field = Callable[[ReceivedMessage], Any]


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
    if function.has_sdk_type:
        if wire:
            contents = [delivery.tag + delivery.payload for delivery in deliveries]
            return Input(_model_binding_data(function, _SERVICE_BUS_SOURCE, contents), {})
        messages = _messages(deliveries)
        contents = [
            delivery.tag + encoded(message.content, now, delivery_count_offset=1)
            for delivery, message in zip(deliveries, messages, strict=True)
        ]
        data = _model_binding_data(function, _SERVICE_BUS_SOURCE, contents)
        metadata = _metadata(function, messages, _SERVICE_BUS_FIELDS) | _of_binding_data(data)
    else:
        data, metadata = _stock_input(function, deliveries, _SERVICE_BUS_FIELDS)
    others = {name: TypedData(json=newtonsoft.dumps(value)) for name, value in (receiver or {}).items()}
    return Input(data, others | metadata)


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
    text = TypedData(json=newtonsoft.dumps(dict(partition)))
    context = {"PartitionContext": text, "TriggerPartitionContext": text}
    if function.has_sdk_type:
        if wire:
            return Input(
                _model_binding_data(function, _EVENT_HUBS_SOURCE, [one.payload for one in deliveries]), context
            )
        messages = _messages(deliveries)
        data = _model_binding_data(function, _EVENT_HUBS_SOURCE, [encoded(one.content, now) for one in messages])
        fields = _metadata(function, messages, _EVENT_HUBS_FIELDS) | _of_binding_data(data)
        return Input(data, {**fields, **context})
    data, metadata = _stock_input(function, deliveries, _EVENT_HUBS_FIELDS)
    return Input(data, {**metadata, **context})


def _model_binding_data(function: Function, source: str, contents: Sequence[bytes]) -> TypedData:
    items = [ModelBindingData(_VERSION, source, _CONTENT_TYPE, content) for content in contents]
    if function.is_many:
        return TypedData(collection_model_binding_data=CollectionModelBindingData(items))
    return TypedData(model_binding_data=items[0])


def _of_binding_data(data: TypedData) -> dict[str, TypedData]:
    """Return the fields of one ModelBindingData, which the host adds to the trigger metadata."""
    if data.kind != "model_binding_data":
        return {}
    one: ModelBindingData = data.data
    content = {"Length": len(one.content), "IsEmpty": not one.content, "MediaType": None}
    return {
        "Version": TypedData(string=one.version),
        "Source": TypedData(string=one.source),
        "ContentType": TypedData(string=one.content_type),
        "Content": TypedData(json=newtonsoft.dumps(content)),
    }


def _messages(deliveries: Sequence[Delivery]) -> list[ReceivedMessage]:
    return [ReceivedMessage(delivery.payload, delivery.tag) for delivery in deliveries]


def _metadata(
    function: Function, messages: Sequence[ReceivedMessage], fields: Mapping[str, Field]
) -> dict[str, TypedData]:
    if function.is_many:
        found = {f"{name}Array": _many([field(one) for one in messages], name) for name, field in fields.items()}
    else:
        values = {name: field(messages[0]) for name, field in {**fields, **_SINGLE_FIELDS}.items() if name in fields}
        found = {name: _single(value, name) for name, value in values.items() if value is not None}
    for name, same in _ALIASES:
        if same in found:
            found[name] = found[same]
    return found


def _stock_input(function: Function, deliveries: Sequence[Delivery], fields: Mapping[str, Field]) -> Input:
    messages = _messages(deliveries)
    metadata = _metadata(function, messages, fields)
    if function.is_many:
        return Input(_many_bodies(function.data_type, messages), metadata)
    body = _one_body(function.data_type, messages[0])
    if body.kind == "string":
        names = {name.casefold(): name for name in metadata}
        for name, value in fields_of_json(body.data).items():
            metadata[names.get(name.casefold(), name)] = value
    return Input(body, metadata)


def fields_of_json(text: str) -> dict[str, TypedData]:
    """Return the fields of a JSON object as trigger metadata: texts, JSON for objects, nothing for arrays and nulls."""
    trimmed = text.strip()
    if not (trimmed.startswith("{") and trimmed.endswith("}")):
        return {}
    try:
        document = json.loads(trimmed)
    except ValueError:
        return {}
    found = {}
    for name, value in document.items():
        if isinstance(value, dict):
            found[name] = TypedData(json=newtonsoft.dumps(value))
        elif value is not None and not isinstance(value, list):
            found[name] = TypedData(string=newtonsoft.number_text(value) if isinstance(value, float) else str(value))
    return found


def _one_body(data_type: str, message: ReceivedMessage) -> TypedData:
    if data_type == "BINARY":
        return TypedData(bytes=message.body())
    return TypedData(string=message.text_body())


def _many_bodies(data_type: str, messages: Sequence[ReceivedMessage]) -> TypedData:
    if data_type == "BINARY":
        return TypedData(collection_bytes=CollectionBytes([message.body() for message in messages]))
    texts = [message.text_body() for message in messages]
    if data_type == "STRING":
        return TypedData(collection_string=CollectionString([text for text in texts if text]))
    try:
        return TypedData(json=newtonsoft.rows([json.loads(text) for text in texts]))
    except ValueError as error:
        raise CannotBind(
            "a body that is not JSON, for a binding of many without data_type: JsonReaderException"
        ) from error


def _single(value: Any, name: str) -> TypedData:
    if name in _TEXT_FIELDS:
        return TypedData(string=value)
    return TypedData(json=newtonsoft.dumps(value))


def _many(values: list[Any], name: str) -> TypedData:
    if name in _TEXT_FIELDS:
        return TypedData(collection_string=CollectionString([value for value in values if value]))
    if name == "SequenceNumber":
        return TypedData(collection_sint64=CollectionSInt64(values))
    return TypedData(json=newtonsoft.rows(values))


def _properties(message: ReceivedMessage) -> dict[str, Any]:
    return {name: newtonsoft.value_as_json(value) for name, value in message.application_properties.items()}


def _system_properties(message: ReceivedMessage) -> dict[str, Any]:
    """Return fields of the properties section and annotations, as AmqpSystemProperties and the extension do."""
    annotations = {name: newtonsoft.value_as_json(value) for name, value in message.annotations.items()}
    if "x-opt-enqueued-time" in annotations:
        annotations["x-opt-enqueued-time"] = _offset_text(message.enqueued_time)  # a DateTimeOffset, unlike others
    return (
        message.properties_as_json()
        | annotations
        | {
            "SequenceNumber": message.annotation_number("x-opt-sequence-number"),
            "Offset": int(_numeric_offset(message)),
            "OffsetString": message.annotation_text("x-opt-offset"),
            "PartitionKey": message.annotation_text("x-opt-partition-key"),
            "EnqueuedTimeUtc": newtonsoft.date_text(message.enqueued_time),
        }
    )


def _numeric_offset(message: ReceivedMessage) -> str:
    """Return a numeric offset, -1 for any other (long.TryParse in the extension)."""
    text = message.annotation_text("x-opt-offset") or ""
    return text if text.isascii() and text.isdigit() else "-1"


def _offset_text(milliseconds: int) -> str:
    return newtonsoft.date_text(milliseconds) + "+00:00"


_SERVICE_BUS_FIELDS: dict[str, Field] = {
    "DeliveryCount": lambda message: message.delivery_count,
    "DeadLetterSource": lambda message: message.annotation_text("x-opt-deadletter-source"),
    "LockToken": lambda message: message.lock_token,
    "ExpiresAtUtc": lambda message: newtonsoft.date_text(message.expires_at),
    "ExpiresAt": lambda message: _offset_text(message.expires_at),
    "EnqueuedTimeUtc": lambda message: newtonsoft.date_text(message.enqueued_time),
    "EnqueuedTime": lambda message: _offset_text(message.enqueued_time),
    "MessageId": lambda message: message.text(0),
    "ContentType": lambda message: message.text(_CONTENT),
    "ReplyTo": lambda message: message.text(_REPLY_TO),
    "SequenceNumber": lambda message: message.annotation_number("x-opt-sequence-number"),
    "To": lambda message: message.text(_TO),
    "Subject": lambda message: message.text(_SUBJECT),
    "CorrelationId": lambda message: message.text(_CORRELATION_ID),
    "ApplicationProperties": _properties,
    "SessionId": lambda message: message.text(_GROUP_ID),
    "ReplyToSessionId": lambda message: message.text(_REPLY_TO_GROUP_ID),
    "PartitionKey": lambda message: message.annotation_text("x-opt-partition-key"),
    # For a batch the extension passes the partition keys here as well; a single message gets its own value, see below.
    "TransactionPartitionKey": lambda message: message.annotation_text("x-opt-partition-key"),
}
_SINGLE_FIELDS: dict[str, Field] = {
    "TransactionPartitionKey": lambda message: message.annotation_text("x-opt-via-partition-key"),
}
_EVENT_HUBS_FIELDS: dict[str, Field] = {
    "PartitionKey": lambda message: message.annotation_text("x-opt-partition-key"),
    "Offset": _numeric_offset,
    "OffsetString": lambda message: message.annotation_text("x-opt-offset"),
    "SequenceNumber": lambda message: message.annotation_number("x-opt-sequence-number"),
    "EnqueuedTimeUtc": lambda message: newtonsoft.date_text(message.enqueued_time),
    "Properties": _properties,
    "SystemProperties": _system_properties,
}
_ALIASES = (
    ("UserProperties", "ApplicationProperties"),
    ("UserPropertiesArray", "ApplicationPropertiesArray"),
    ("Label", "Subject"),
    ("LabelArray", "SubjectArray"),
)
_TEXT_FIELDS = frozenset(
    (
        "DeadLetterSource",
        "LockToken",
        "MessageId",
        "ContentType",
        "ReplyTo",
        "To",
        "Subject",
        "Label",
        "CorrelationId",
        "SessionId",
        "ReplyToSessionId",
        "PartitionKey",
        "TransactionPartitionKey",
        "Offset",
        "OffsetString",
    )
)
