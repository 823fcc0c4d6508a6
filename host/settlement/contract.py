"""
The messages and calls of the service `Settlement`, made by protobuf's own runtime when this module is imported.

Source: settlement.proto of Microsoft's Service Bus extension (Azure/azure-sdk-for-net, sdk/servicebus/
Microsoft.Azure.WebJobs.Extensions.ServiceBus); the file has no package, so neither has the service.
"""

from typing import Any

from google.protobuf import descriptor_pb2, empty_pb2, message_factory, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pool import DescriptorPool

SERVICE = "Settlement"

_TOKEN, _SESSION, _PROPERTIES = "locktoken", "sessionId", "propertiesToModify"
_STRING, _BYTES = descriptor_pb2.FieldDescriptorProto.TYPE_STRING, descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
_TEXT, _TIME = ".google.protobuf.StringValue", ".google.protobuf.Timestamp"

# The fields in the order of their numbers, from 1.
_FIELDS: dict[str, dict[str, int | str]] = {
    "CompleteRequest": {_TOKEN: _STRING},
    "AbandonRequest": {_TOKEN: _STRING, _PROPERTIES: _BYTES},
    "DeadletterRequest": {
        _TOKEN: _STRING,
        _PROPERTIES: _BYTES,
        "deadletterReason": _TEXT,
        "deadletterErrorDescription": _TEXT,
    },
    "DeferRequest": {_TOKEN: _STRING, _PROPERTIES: _BYTES},
    "RenewMessageLockRequest": {_TOKEN: _STRING},
    "GetSessionStateRequest": {_SESSION: _STRING},
    "SetSessionStateRequest": {_SESSION: _STRING, "sessionState": _BYTES},
    "GetSessionStateResponse": {"sessionState": _BYTES},
    "ReleaseSessionRequest": {_SESSION: _STRING},
    "RenewSessionLockRequest": {_SESSION: _STRING},
    "RenewSessionLockResponse": {"lockedUntil": _TIME},
}


def _pool() -> DescriptorPool:
    # A pool of its own: another package of the app may have put the same names into the default one.
    pool = DescriptorPool()
    file = descriptor_pb2.FileDescriptorProto(name="settlement.proto", syntax="proto3")
    for known in (empty_pb2, wrappers_pb2, timestamp_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
        file.dependency.append(known.DESCRIPTOR.name)
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields.items(), 1):
            described = message.field.add(name=field, number=number, label="LABEL_OPTIONAL")
            if isinstance(kind, str):
                described.type, described.type_name = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE, kind
            else:
                described.type = kind  # type: ignore[assignment] # the stubs know the names of an enum only
    pool.AddSerializedFile(file.SerializeToString())
    return pool


_POOL = _pool()


def message(name: str) -> Any:
    """Return the class of a message of the contract."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(name))


EMPTY: Any = message("google.protobuf.Empty")

CALLS: dict[str, tuple[Any, Any]] = {
    name.removesuffix("Request"): (
        message(name),
        message(answer) if (answer := name.replace("Request", "Response")) in _FIELDS else EMPTY,
    )
    for name in _FIELDS
    if name.endswith("Request")
}
"""The classes of request and response by the name of the call."""
